-- +goose Up

-- Jobs. Rows stay small, for every recorded step writes "updated": texts are in
-- job_text. Times are nanoseconds since 1970, 0 for none.
CREATE TABLE job (
    id        INTEGER PRIMARY KEY AUTOINCREMENT, -- never used again
    tenant    TEXT    NOT NULL,
    name      TEXT    NOT NULL,
    agent     TEXT    NOT NULL,
    flow      TEXT    NOT NULL,
    shape     INTEGER NOT NULL,
    key_id    INTEGER NOT NULL REFERENCES data_key (id),
    state     TEXT    NOT NULL,
    code      TEXT    NOT NULL,
    created   INTEGER NOT NULL,
    updated   INTEGER NOT NULL,
    deadline  INTEGER NOT NULL,
    ready     INTEGER NOT NULL, -- since when it can be claimed
    wake      INTEGER NOT NULL, -- when a waiting job goes on by itself
    owner     TEXT    NOT NULL, -- who claimed it last
    epoch     INTEGER NOT NULL, -- how often it was claimed
    lease     INTEGER NOT NULL, -- until when it is claimed
    decisions INTEGER NOT NULL, -- how many questions have been decided
    cancelled INTEGER NOT NULL, -- when its end was asked for
    UNIQUE (tenant, name)
);
CREATE INDEX job_ready ON job (lease, ready) WHERE state = 'running';
CREATE INDEX job_wake ON job (wake) WHERE state = 'waiting' AND wake <> 0;
CREATE INDEX job_open ON job (id) WHERE state IN ('running', 'waiting');
CREATE INDEX job_created ON job (tenant, created);

-- The input of a job, its end, and who cancelled it; sealed.
CREATE TABLE job_text (
    job    INTEGER NOT NULL REFERENCES job (id),
    what   TEXT    NOT NULL,
    tenant TEXT    NOT NULL,
    body   BLOB    NOT NULL,
    UNIQUE (job, what)
);

-- The histories of jobs. No row is ever changed. head and body are sealed; body
-- is the input or the value, or the digest of a blob.
CREATE TABLE job_record (
    seq        INTEGER PRIMARY KEY,
    job        INTEGER NOT NULL REFERENCES job (id),
    tenant     TEXT    NOT NULL,
    what       TEXT    NOT NULL,
    key_digest BLOB    NOT NULL, -- keyed, of the key in plain
    try        INTEGER NOT NULL,
    at         INTEGER NOT NULL,
    until      INTEGER NOT NULL,
    head       BLOB    NOT NULL,
    body       BLOB,
    UNIQUE (job, key_digest, what, try)
);
CREATE INDEX job_question ON job_record (job) WHERE what = 'asked';

-- Bodies over 32 KiB, sealed, once each in a job.
CREATE TABLE job_blob (
    job    INTEGER NOT NULL REFERENCES job (id),
    digest BLOB    NOT NULL, -- keyed, of the body in plain
    tenant TEXT    NOT NULL,
    body   BLOB    NOT NULL,
    UNIQUE (job, digest)
);

-- +goose Down
DROP TABLE job_blob;
DROP TABLE job_record;
DROP TABLE job_text;
DROP TABLE job;
