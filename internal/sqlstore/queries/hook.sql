-- name: AddHookStat :exec
INSERT INTO hook_stat (tenant, agent, hook, asked, changed, rejected, retried, failed, timeouts, last_fired, last_failure)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant, agent, hook) DO UPDATE SET
    asked        = asked + excluded.asked,
    changed      = changed + excluded.changed,
    rejected     = rejected + excluded.rejected,
    retried      = retried + excluded.retried,
    failed       = failed + excluded.failed,
    timeouts     = timeouts + excluded.timeouts,
    last_fired   = max(last_fired, excluded.last_fired),
    last_failure = max(last_failure, excluded.last_failure);

-- name: ListHookStats :many
SELECT tenant, agent, hook, asked, changed, rejected, retried, failed, timeouts, last_fired, last_failure
FROM hook_stat
WHERE tenant = ? AND agent = ?
ORDER BY hook;

-- name: InsertHookSwitch :one
INSERT INTO hook_switch (tenant, agent, hook, disabled, until, actor, reason, at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
RETURNING id;

-- name: ListHookSwitches :many
SELECT id, tenant, agent, hook, disabled, until, actor, reason, at
FROM hook_switch
WHERE tenant = ? AND agent = ?
ORDER BY id;

-- name: ListHookSwitchesInForce :many
SELECT id, tenant, agent, hook, disabled, until, actor, reason, at
FROM hook_switch
WHERE hook_switch.id IN (
        SELECT max(newest.id) FROM hook_switch AS newest
        WHERE newest.tenant = sqlc.arg(tenant) AND newest.agent = sqlc.arg(agent)
        GROUP BY newest.hook
    )
    AND hook_switch.disabled = 1
    AND (hook_switch.until = 0 OR hook_switch.until > sqlc.arg(now))
ORDER BY hook_switch.hook;

-- name: GetHookSwitchVersion :one
SELECT CAST(coalesce(max(id), 0) AS INTEGER) FROM hook_switch;
