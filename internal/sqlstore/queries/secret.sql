-- name: GetSecretKey :one
SELECT sealed FROM secret_key
WHERE tenant = ? AND purpose = ?;

-- name: InsertSecretKey :exec
INSERT INTO secret_key (tenant, purpose, sealed)
VALUES (?, ?, ?);

-- name: GetSecret :one
SELECT tenant, name, version, created, updated, actor, sealed
FROM secret
WHERE tenant = ? AND name = ?;

-- name: ListSecrets :many
SELECT tenant, name, version, created, updated, actor
FROM secret
WHERE tenant = ?
ORDER BY name;

-- name: ListSecretTenants :many
SELECT DISTINCT tenant FROM secret_print
ORDER BY tenant;

-- name: PutSecret :exec
INSERT INTO secret (tenant, name, version, created, updated, actor, sealed)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant, name) DO UPDATE SET
    version = excluded.version, updated = excluded.updated, actor = excluded.actor, sealed = excluded.sealed;

-- name: DeleteSecret :execrows
DELETE FROM secret
WHERE tenant = ? AND name = ?;

-- name: ListSecretPrints :many
SELECT tenant, name, version, until, sealed
FROM secret_print
WHERE tenant = ?
ORDER BY name, version;

-- name: InsertSecretPrint :exec
INSERT INTO secret_print (tenant, name, version, until, sealed)
VALUES (?, ?, ?, ?, ?);

-- name: EndSecretPrints :exec
UPDATE secret_print SET until = sqlc.arg(until)
WHERE tenant = sqlc.arg(tenant) AND name = sqlc.arg(name) AND until = 0;

-- name: DeleteSecretPrints :exec
DELETE FROM secret_print
WHERE tenant = ? AND name = ?;

-- name: DeleteEndedSecretPrints :exec
DELETE FROM secret_print
WHERE tenant = ? AND until <> 0 AND until <= ?;
