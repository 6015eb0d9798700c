-- name: InsertToken :exec
INSERT INTO token (id, tenant, name, role, hash, created, created_by, last_used, expires, revoked, revoked_by)
VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?, 0, '');

-- name: GetTokenByHash :one
SELECT id, tenant, name, role, hash, created, created_by, last_used, expires, revoked, revoked_by
FROM token
WHERE hash = ?;

-- name: GetLiveToken :one
SELECT id, tenant, name, role, hash, created, created_by, last_used, expires, revoked, revoked_by
FROM token
WHERE tenant = ? AND name = ? AND revoked = 0;

-- name: ListTokens :many
SELECT id, tenant, name, role, hash, created, created_by, last_used, expires, revoked, revoked_by
FROM token
WHERE tenant = ?
ORDER BY created, id;

-- name: UseToken :exec
UPDATE token SET last_used = sqlc.arg(at)
WHERE id = sqlc.arg(id) AND last_used < sqlc.arg(at);

-- name: RevokeToken :exec
UPDATE token SET revoked = ?, revoked_by = ?
WHERE id = ?;
