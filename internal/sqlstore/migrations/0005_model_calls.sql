-- +goose Up

-- The calls of models: by plugins through the gateway, and by the agents themselves.
-- When a job is deleted its rows stay without what was sealed, so that what was spent
-- in a month stays spent; they go when no period counts them any more.
CREATE TABLE model_call (
    seq    INTEGER PRIMARY KEY,
    id     TEXT    NOT NULL UNIQUE,
    job    INTEGER REFERENCES job (id), -- NULL: there is none any more
    tenant TEXT    NOT NULL,
    agent  TEXT    NOT NULL,
    begun  INTEGER NOT NULL,
    ended  INTEGER NOT NULL, -- 0 while it runs, and when its process died under it
    cost   INTEGER NOT NULL, -- in millionths; until it has ended, what was reserved
    tokens INTEGER NOT NULL, -- likewise
    head   BLOB,             -- who, what and how, sealed
    body   BLOB              -- request and answer where they are recorded, sealed
);
CREATE INDEX model_call_job ON model_call (job);
CREATE INDEX model_call_begun ON model_call (begun);

-- +goose Down
DROP TABLE model_call;
