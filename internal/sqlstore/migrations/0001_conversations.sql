-- +goose Up

-- What holds for the whole file: under "recipient" the public half of the
-- master key that seals the data keys.
CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

-- The sealed data keys, one a conversation. A key that is dropped is written
-- over with zeros of the same length, and its row is used again: no row is ever
-- taken out, so pages are not rebuilt around the keys of others, of which a copy
-- could stay behind. secure_delete sees to the rest. (For that there is no column
-- of varying length beside the key; the tenant is the conversation's.)
CREATE TABLE data_key (
    id     INTEGER PRIMARY KEY,
    used   INTEGER NOT NULL,
    sealed BLOB    NOT NULL
);
CREATE INDEX data_key_unused ON data_key (id) WHERE used = 0;

-- Times are nanoseconds since 1970, 0 for none.
CREATE TABLE conversation (
    id       INTEGER PRIMARY KEY AUTOINCREMENT, -- never used again
    tenant   TEXT    NOT NULL,
    agent    TEXT    NOT NULL,
    sender   TEXT    NOT NULL,
    key_id   INTEGER NOT NULL REFERENCES data_key (id),
    last_seq INTEGER NOT NULL, -- of the newest event, 0 for none
    created  INTEGER NOT NULL,
    updated  INTEGER NOT NULL,
    UNIQUE (tenant, agent, sender)
);
CREATE INDEX conversation_updated ON conversation (tenant, agent, updated);

-- body is sealed: a short event as it is, or the digest of a blob.
CREATE TABLE event (
    conversation INTEGER NOT NULL REFERENCES conversation (id),
    seq          INTEGER NOT NULL,
    tenant       TEXT    NOT NULL,
    turn         TEXT    NOT NULL,
    kind         TEXT    NOT NULL,
    at           INTEGER NOT NULL,
    body         BLOB    NOT NULL,
    UNIQUE (conversation, seq)
);

-- Bodies over 32 KiB, sealed, once each in a conversation.
CREATE TABLE blob (
    conversation INTEGER NOT NULL REFERENCES conversation (id),
    digest       BLOB    NOT NULL, -- keyed, of the body in plain
    tenant       TEXT    NOT NULL,
    body         BLOB    NOT NULL,
    UNIQUE (conversation, digest)
);

CREATE TABLE trace (
    seq          INTEGER PRIMARY KEY, -- one count for the whole file
    conversation INTEGER NOT NULL REFERENCES conversation (id),
    tenant       TEXT    NOT NULL,
    turn         TEXT    NOT NULL,
    at           INTEGER NOT NULL,
    body         BLOB    NOT NULL
);
CREATE INDEX trace_conversation ON trace (conversation);

CREATE TABLE hook_stat (
    tenant       TEXT    NOT NULL,
    agent        TEXT    NOT NULL,
    hook         TEXT    NOT NULL,
    asked        INTEGER NOT NULL,
    changed      INTEGER NOT NULL,
    rejected     INTEGER NOT NULL,
    retried      INTEGER NOT NULL,
    failed       INTEGER NOT NULL,
    timeouts     INTEGER NOT NULL,
    last_fired   INTEGER NOT NULL,
    last_failure INTEGER NOT NULL,
    PRIMARY KEY (tenant, agent, hook)
) WITHOUT ROWID;

-- Every disabling and enabling of a hook. The newest row of a hook holds; none
-- is ever changed or taken out.
CREATE TABLE hook_switch (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant   TEXT    NOT NULL,
    agent    TEXT    NOT NULL,
    hook     TEXT    NOT NULL,
    disabled INTEGER NOT NULL,
    until    INTEGER NOT NULL, -- 0: until it is enabled again
    actor    TEXT    NOT NULL,
    reason   TEXT    NOT NULL,
    at       INTEGER NOT NULL
);
CREATE INDEX hook_switch_hook ON hook_switch (tenant, agent, hook);

-- +goose Down
DROP TABLE hook_switch;
DROP TABLE hook_stat;
DROP TABLE trace;
DROP TABLE blob;
DROP TABLE event;
DROP TABLE conversation;
DROP TABLE data_key;
DROP TABLE meta;
