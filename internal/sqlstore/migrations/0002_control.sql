-- +goose Up

-- The record of what was changed and by whom; see package audit. One chain a
-- tenant, counted from 1. Names, numbers and digests only: it stands in plain.
CREATE TABLE audit (
    tenant  TEXT    NOT NULL,
    seq     INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    actor   TEXT    NOT NULL,
    action  TEXT    NOT NULL,
    subject TEXT    NOT NULL,
    data    TEXT    NOT NULL, -- a JSON object, byte for byte as it was hashed
    prev    BLOB    NOT NULL,
    hash    BLOB    NOT NULL,
    PRIMARY KEY (tenant, seq)
) WITHOUT ROWID;

-- Only so that a mistake of ours is noticed: who can write the file can drop
-- triggers too. Against that stands the head that is kept elsewhere.
-- +goose StatementBegin
CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit
BEGIN
    SELECT RAISE(ABORT, 'the audit record is append-only');
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER audit_is_not_deleted BEFORE DELETE ON audit
BEGIN
    SELECT RAISE(ABORT, 'the audit record is append-only');
END;
-- +goose StatementEnd

-- Tokens of the API. The text of a token is nowhere, only its SHA-256. A row
-- that was revoked stays.
CREATE TABLE token (
    id         TEXT    PRIMARY KEY,
    tenant     TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    role       TEXT    NOT NULL,
    hash       BLOB    NOT NULL UNIQUE,
    created    INTEGER NOT NULL,
    created_by TEXT    NOT NULL,
    last_used  INTEGER NOT NULL, -- to the hour; 0 for never
    expires    INTEGER NOT NULL, -- 0 for never
    revoked    INTEGER NOT NULL, -- 0 for not
    revoked_by TEXT    NOT NULL
) WITHOUT ROWID;
CREATE UNIQUE INDEX token_name ON token (tenant, name) WHERE revoked = 0;

-- Plugins by tenant, in the order of position. The row of a plugin that was
-- removed stays and keeps its place.
CREATE TABLE plugin (
    tenant        TEXT    NOT NULL,
    name          TEXT    NOT NULL,
    position      INTEGER NOT NULL,
    version       TEXT    NOT NULL,
    digest        TEXT    NOT NULL, -- of the snapshot of its folder
    manifest      TEXT    NOT NULL, -- the name of its manifest
    model_granted INTEGER NOT NULL,
    installed     INTEGER NOT NULL, -- the last installation
    installed_by  TEXT    NOT NULL,
    updated       INTEGER NOT NULL, -- the last update, 0 for none since
    updated_by    TEXT    NOT NULL,
    removed       INTEGER NOT NULL, -- 0 for not
    removed_by    TEXT    NOT NULL,
    PRIMARY KEY (tenant, name)
) WITHOUT ROWID;

-- Every application of a tool policy. The newest of a tenant holds; none is
-- ever changed or taken out.
CREATE TABLE policy (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant   TEXT    NOT NULL,
    version  TEXT    NOT NULL, -- the digest of the text
    text     TEXT    NOT NULL, -- "" for the default policy
    applied  INTEGER NOT NULL,
    actor    TEXT    NOT NULL,
    enforced INTEGER NOT NULL  -- 1: also for jobs that run already
);
CREATE INDEX policy_tenant ON policy (tenant, id);

-- Messages to people that are to be sent, and those that were sent, so that
-- none is sent for one matter twice. The body holds names and ids only.
CREATE TABLE outbox (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant    TEXT    NOT NULL,
    target    TEXT    NOT NULL, -- the name of a webhook
    event     TEXT    NOT NULL,
    subject   TEXT    NOT NULL, -- what it is about, such as an approval's id
    body      TEXT    NOT NULL,
    created   INTEGER NOT NULL,
    due       INTEGER NOT NULL, -- when to try next; 0: no more
    tries     INTEGER NOT NULL,
    failure   TEXT    NOT NULL, -- of the last try
    delivered INTEGER NOT NULL, -- 0 for not
    UNIQUE (tenant, target, event, subject)
);
CREATE INDEX outbox_due ON outbox (target, due) WHERE due > 0;

-- +goose Down
DROP TABLE outbox;
DROP TABLE policy;
DROP TABLE plugin;
DROP TABLE token;
DROP TABLE audit;
