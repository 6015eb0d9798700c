-- name: GetPlugin :one
SELECT tenant, name, position, version, digest, manifest, model_granted,
    installed, installed_by, updated, updated_by, removed, removed_by
FROM plugin
WHERE tenant = ? AND name = ?;

-- name: ListPlugins :many
SELECT tenant, name, position, version, digest, manifest, model_granted,
    installed, installed_by, updated, updated_by, removed, removed_by
FROM plugin
WHERE tenant = ?
ORDER BY position, name;

-- name: ListPluginDigests :many
SELECT DISTINCT digest FROM plugin
WHERE removed = 0
ORDER BY digest;

-- name: PutPlugin :exec
INSERT INTO plugin (tenant, name, position, version, digest, manifest, model_granted,
    installed, installed_by, updated, updated_by, removed, removed_by)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant, name) DO UPDATE SET
    position      = excluded.position,
    version       = excluded.version,
    digest        = excluded.digest,
    manifest      = excluded.manifest,
    model_granted = excluded.model_granted,
    installed     = excluded.installed,
    installed_by  = excluded.installed_by,
    updated       = excluded.updated,
    updated_by    = excluded.updated_by,
    removed       = excluded.removed,
    removed_by    = excluded.removed_by;

-- name: PlacePlugin :exec
UPDATE plugin SET position = ?
WHERE tenant = ? AND name = ?;
