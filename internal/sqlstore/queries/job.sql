-- name: FindJobKey :one
SELECT job.id, data_key.sealed
FROM job
JOIN data_key ON data_key.id = job.key_id
WHERE job.tenant = ? AND job.name = ?;

-- name: InsertJob :one
INSERT INTO job (tenant, name, agent, flow, shape, key_id, state, code, created, updated, deadline, ready, wake, owner, epoch, lease, decisions, cancelled)
VALUES (sqlc.arg(tenant), sqlc.arg(name), sqlc.arg(agent), sqlc.arg(flow), sqlc.arg(shape), sqlc.arg(key_id), 'running', '',
    sqlc.arg(created), sqlc.arg(created), sqlc.arg(deadline), sqlc.arg(created), 0, '', 0, 0, 0, 0)
ON CONFLICT (tenant, name) DO NOTHING
RETURNING id;

-- name: GetJob :one
SELECT id, tenant, name, agent, flow, shape, key_id, state, code, created, updated, deadline, ready, wake, owner, epoch, lease, decisions, cancelled
FROM job WHERE id = ?;

-- name: ListJobs :many
SELECT id, tenant, name, agent, flow, shape, key_id, state, code, created, updated, deadline, ready, wake, owner, epoch, lease, decisions, cancelled
FROM job
WHERE tenant = sqlc.arg(tenant)
    AND (agent = sqlc.arg(agent) OR sqlc.arg(agent) = '')
    AND (instr(sqlc.arg(states), state) > 0 OR sqlc.arg(states) = '')
ORDER BY created DESC, name DESC
LIMIT sqlc.arg(most);

-- name: HasReadyJobs :one
SELECT CAST(
    EXISTS (SELECT 1 FROM job AS free WHERE free.state = 'running' AND free.lease <= sqlc.arg(now))
    OR EXISTS (SELECT 1 FROM job AS due WHERE due.state = 'waiting' AND due.wake <> 0 AND due.wake <= sqlc.arg(now))
AS INTEGER);

-- name: WakeDueJobs :exec
UPDATE job SET state = 'running', ready = wake, wake = 0, lease = 0
WHERE state = 'waiting' AND wake <> 0 AND wake <= sqlc.arg(now);

-- name: ClaimJobs :many
UPDATE job SET owner = sqlc.arg(owner), epoch = epoch + 1, lease = sqlc.arg(until)
WHERE id IN (SELECT ready_job.id FROM job AS ready_job WHERE ready_job.state = 'running' AND ready_job.lease <= sqlc.arg(now) ORDER BY ready_job.ready, ready_job.id LIMIT sqlc.arg(most))
RETURNING id, tenant, name, epoch, ready;

-- name: VoidLeases :exec
UPDATE job SET lease = 0 WHERE state = 'running' AND lease <> 0;

-- name: GetNextWake :one
SELECT wake FROM job WHERE state = 'waiting' AND wake <> 0
ORDER BY wake LIMIT 1;

-- name: RenewLease :execrows
UPDATE job SET lease = max(lease, CAST(sqlc.arg(until) AS INTEGER))
WHERE id = sqlc.arg(id) AND epoch = sqlc.arg(epoch) AND state = 'running' AND lease <> 0;

-- name: TouchJob :execrows
UPDATE job SET updated = sqlc.arg(at)
WHERE id = sqlc.arg(id) AND epoch = sqlc.arg(epoch) AND state = 'running' AND lease <> 0;

-- name: ParkJob :exec
UPDATE job SET state = 'waiting', wake = sqlc.arg(wake), updated = sqlc.arg(at), owner = '', lease = 0
WHERE id = sqlc.arg(id);

-- name: EndJob :exec
UPDATE job SET state = sqlc.arg(state), code = sqlc.arg(code), updated = sqlc.arg(at), owner = '', lease = 0
WHERE id = sqlc.arg(id);

-- name: ReleaseJob :execrows
UPDATE job SET owner = '', lease = 0
WHERE id = sqlc.arg(id) AND epoch = sqlc.arg(epoch) AND state = 'running' AND lease <> 0;

-- name: CountDecision :exec
UPDATE job SET decisions = decisions + 1, updated = sqlc.arg(at)
WHERE id = sqlc.arg(id);

-- name: CancelJob :exec
UPDATE job SET cancelled = sqlc.arg(at), updated = sqlc.arg(at)
WHERE id = sqlc.arg(id);

-- name: WakeJob :exec
UPDATE job SET state = 'running', ready = sqlc.arg(at), wake = 0, lease = 0
WHERE id = sqlc.arg(id) AND state = 'waiting';

-- name: DeleteJob :exec
DELETE FROM job WHERE id = ?;

-- name: InsertJobText :exec
INSERT INTO job_text (job, what, tenant, body)
VALUES (?, ?, ?, ?);

-- name: ListJobTexts :many
SELECT what, body FROM job_text WHERE job = ?;

-- name: DeleteJobTexts :exec
DELETE FROM job_text WHERE job = ?;

-- name: InsertJobRecord :execrows
INSERT INTO job_record (job, tenant, what, key_digest, try, at, until, head, body)
SELECT sqlc.arg(job), sqlc.arg(tenant), sqlc.arg(what), sqlc.arg(key_digest), sqlc.arg(try), sqlc.arg(at), sqlc.arg(until), sqlc.arg(head), sqlc.arg(body)
WHERE NOT EXISTS (
    SELECT 1 FROM job_record AS other
    WHERE other.job = sqlc.arg(job) AND other.key_digest = sqlc.arg(key_digest) AND other.what = 'answered'
)
ON CONFLICT (job, key_digest, what, try) DO NOTHING;

-- name: GetJobRecord :one
SELECT seq, job, tenant, what, key_digest, try, at, until, head, body
FROM job_record
WHERE job = ? AND key_digest = ? AND what = ? AND try = ?;

-- name: ListJobRecords :many
SELECT seq, what, key_digest, try, at, until, head,
    CAST(CASE WHEN sqlc.arg(inputs) = 1 OR what IN ('answered', 'decided') THEN body END AS BLOB) AS body
FROM job_record WHERE job = sqlc.arg(job)
ORDER BY seq;

-- name: ListQuestions :many
SELECT job.id, job.tenant, job.name, job.agent, data_key.sealed, record.key_digest, record.try, record.at, record.until, record.head, record.body
FROM job
CROSS JOIN job_record AS record ON record.job = job.id
JOIN data_key ON data_key.id = job.key_id
WHERE job.state IN ('running', 'waiting') AND job.cancelled = 0 AND record.what = 'asked'
    AND (job.tenant = sqlc.arg(tenant) OR sqlc.arg(tenant) = '')
    AND NOT EXISTS (
        SELECT 1 FROM job_record AS decision
        WHERE decision.job = record.job AND decision.key_digest = record.key_digest AND decision.what = 'decided'
    )
ORDER BY record.seq;

-- name: DeleteJobRecords :exec
DELETE FROM job_record WHERE job = ?;

-- name: InsertJobBlob :exec
INSERT INTO job_blob (job, digest, tenant, body)
VALUES (?, ?, ?, ?)
ON CONFLICT (job, digest) DO NOTHING;

-- name: GetJobBlob :one
SELECT body FROM job_blob WHERE job = ? AND digest = ?;

-- name: DeleteJobBlobs :exec
DELETE FROM job_blob WHERE job = ?;
