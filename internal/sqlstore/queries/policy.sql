-- name: InsertPolicy :one
INSERT INTO policy (tenant, version, text, applied, actor, enforced)
VALUES (?, ?, ?, ?, ?, ?)
RETURNING id;

-- name: GetPolicy :one
SELECT id, tenant, version, text, applied, actor, enforced
FROM policy
WHERE tenant = ?
ORDER BY id DESC
LIMIT 1;

-- name: GetPolicyVersion :one
SELECT id, tenant, version, text, applied, actor, enforced
FROM policy
WHERE tenant = ? AND version = ?
ORDER BY id DESC
LIMIT 1;

-- name: ListPolicies :many
SELECT id, tenant, version, applied, actor, enforced
FROM policy
WHERE tenant = ?
ORDER BY id DESC;
