-- name: AddMeta :exec
INSERT INTO meta (name, value) VALUES (?, ?)
ON CONFLICT (name) DO NOTHING;

-- name: GetMeta :one
SELECT value FROM meta WHERE name = ?;
