-- name: GetAuditHead :one
SELECT seq, hash FROM audit
WHERE tenant = ?
ORDER BY seq DESC
LIMIT 1;

-- name: InsertAudit :exec
INSERT INTO audit (tenant, seq, at, actor, action, subject, data, prev, hash)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: ListAudit :many
SELECT tenant, seq, at, actor, action, subject, data, prev, hash
FROM audit
WHERE tenant = sqlc.arg(tenant) AND seq > sqlc.arg(after)
ORDER BY seq
LIMIT sqlc.arg(most);

-- name: ListAuditTenants :many
SELECT DISTINCT tenant FROM audit
ORDER BY tenant;
