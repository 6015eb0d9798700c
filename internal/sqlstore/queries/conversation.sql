-- name: FindConversation :one
SELECT conversation.id, conversation.key_id, conversation.last_seq, data_key.sealed
FROM conversation
JOIN data_key ON data_key.id = conversation.key_id
WHERE conversation.tenant = ? AND conversation.agent = ? AND conversation.sender = ?;

-- name: ListConversations :many
SELECT sender, last_seq, created, updated,
    (SELECT count(DISTINCT event.turn) FROM event WHERE event.conversation = conversation.id AND event.turn <> '') AS turns
FROM conversation
WHERE conversation.tenant = ? AND conversation.agent = ?
ORDER BY updated DESC, id DESC;

-- name: ListIdleConversations :many
SELECT sender FROM conversation
WHERE tenant = sqlc.arg(tenant) AND agent = sqlc.arg(agent) AND updated < sqlc.arg(before)
ORDER BY updated;

-- name: GetUpdated :one
SELECT updated FROM conversation
WHERE tenant = ? AND agent = ? AND sender = ?;

-- name: InsertConversation :one
INSERT INTO conversation (tenant, agent, sender, key_id, last_seq, created, updated)
VALUES (sqlc.arg(tenant), sqlc.arg(agent), sqlc.arg(sender), sqlc.arg(key_id), 0, sqlc.arg(now), sqlc.arg(now))
RETURNING id;

-- name: AdvanceConversation :execrows
UPDATE conversation SET last_seq = sqlc.arg(newest), updated = sqlc.arg(updated)
WHERE id = sqlc.arg(id) AND last_seq = sqlc.arg(before);

-- name: GetLastSeq :one
SELECT last_seq FROM conversation WHERE id = ?;

-- name: DeleteConversation :exec
DELETE FROM conversation WHERE id = ?;

-- name: ReuseDataKey :one
UPDATE data_key SET sealed = ?, used = 1
WHERE id = (SELECT id FROM data_key WHERE used = 0 LIMIT 1)
RETURNING id;

-- name: InsertDataKey :one
INSERT INTO data_key (sealed, used) VALUES (?, 1)
RETURNING id;

-- name: WipeDataKey :exec
UPDATE data_key SET sealed = zeroblob(length(sealed)), used = 0
WHERE id = ?;

-- name: InsertEvent :exec
INSERT INTO event (conversation, seq, tenant, turn, kind, at, body)
VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: ListEvents :many
SELECT seq, turn, kind, at, body
FROM event
WHERE conversation = ?
ORDER BY seq;

-- name: DeleteEvents :exec
DELETE FROM event WHERE conversation = ?;

-- name: InsertBlob :exec
INSERT INTO blob (conversation, digest, tenant, body)
VALUES (?, ?, ?, ?)
ON CONFLICT (conversation, digest) DO NOTHING;

-- name: GetBlob :one
SELECT body FROM blob WHERE conversation = ? AND digest = ?;

-- name: DeleteBlobs :exec
DELETE FROM blob WHERE conversation = ?;

-- name: InsertTrace :exec
INSERT INTO trace (seq, conversation, tenant, turn, at, body)
VALUES (?, ?, ?, ?, ?, ?);

-- name: GetLastTraceSeq :one
SELECT CAST(coalesce(max(seq), 0) AS INTEGER) FROM trace;

-- name: ListTraces :many
SELECT seq, turn, at, body
FROM trace
WHERE conversation = ?
ORDER BY seq;

-- name: ListTurnTraces :many
SELECT seq, turn, at, body
FROM trace
WHERE conversation = ? AND turn = ?
ORDER BY seq;

-- name: DeleteTraces :exec
DELETE FROM trace WHERE conversation = ?;

-- name: ListConversationAgents :many
SELECT DISTINCT agent FROM conversation
WHERE tenant = ?
ORDER BY agent;
