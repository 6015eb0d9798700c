-- name: JobIsThere :one
SELECT CAST(EXISTS (SELECT 1 FROM job WHERE id = ?) AS INTEGER);

-- name: PutModelCall :exec
INSERT INTO model_call (id, job, tenant, agent, begun, ended, cost, tokens, head, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET ended = excluded.ended, cost = excluded.cost, tokens = excluded.tokens,
    head = CASE WHEN model_call.job IS NOT NULL THEN excluded.head END,
    body = CASE WHEN model_call.job IS NOT NULL THEN excluded.body END
WHERE model_call.ended = 0;

-- name: ListModelCalls :many
SELECT id, agent, begun, ended, cost, tokens, head, body
FROM model_call WHERE job = ?
ORDER BY seq;

-- name: SumModelCallsByDay :many
SELECT tenant, agent, CAST(begun / 86400000000000 AS INTEGER) AS day, CAST(sum(cost) AS INTEGER) AS cost, CAST(sum(tokens) AS INTEGER) AS tokens
FROM model_call WHERE begun >= sqlc.arg(since)
GROUP BY tenant, agent, day;

-- name: SumModelCallsOfOpenJobs :many
SELECT job.tenant, job.name, CAST(sum(model_call.cost) AS INTEGER) AS cost, CAST(sum(model_call.tokens) AS INTEGER) AS tokens
FROM job
JOIN model_call ON model_call.job = job.id
WHERE job.state IN ('running', 'waiting')
GROUP BY job.id;

-- name: WipeModelCalls :exec
UPDATE model_call SET job = NULL, head = NULL, body = NULL WHERE job = ?;

-- name: DeleteWipedModelCalls :exec
DELETE FROM model_call WHERE job IS NULL AND begun < sqlc.arg(before);

-- name: MarkSynced :exec
INSERT INTO meta (name, value) VALUES ('synced', sqlc.arg(at))
ON CONFLICT (name) DO UPDATE SET value = excluded.value;
