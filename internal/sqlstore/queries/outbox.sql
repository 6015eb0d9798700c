-- name: PutMessage :execrows
INSERT INTO outbox (tenant, target, event, subject, body, created, due, tries, failure, delivered)
VALUES (?, ?, ?, ?, ?, ?, ?, 0, '', 0)
ON CONFLICT (tenant, target, event, subject) DO NOTHING;

-- name: ListDueMessages :many
SELECT id, tenant, target, event, subject, body, created, due, tries, failure, delivered
FROM outbox
WHERE target = sqlc.arg(target) AND due > 0 AND due <= sqlc.arg(now)
ORDER BY due, id
LIMIT sqlc.arg(most);

-- name: ListMessages :many
SELECT id, tenant, target, event, subject, body, created, due, tries, failure, delivered
FROM outbox
WHERE tenant = ?
ORDER BY id DESC
LIMIT sqlc.arg(most);

-- name: GetNextDue :one
SELECT CAST(coalesce(min(due), 0) AS INTEGER) FROM outbox
WHERE target = ? AND due > 0;

-- name: MessageDelivered :exec
UPDATE outbox SET delivered = ?, due = 0, tries = tries + 1, failure = ''
WHERE id = ?;

-- name: MessageFailed :exec
UPDATE outbox SET due = ?, tries = tries + 1, failure = ?
WHERE id = ?;

-- name: DropMessages :execrows
DELETE FROM outbox
WHERE created < ?;
