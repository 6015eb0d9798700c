-- +goose Up

-- The data keys of tenants' secrets, sealed: one for values, one for fingerprints.
CREATE TABLE secret_key (
    tenant  TEXT NOT NULL,
    purpose TEXT NOT NULL,
    sealed  BLOB NOT NULL,
    PRIMARY KEY (tenant, purpose)
) WITHOUT ROWID;

-- The secrets of tenants: the values that they have now, sealed.
CREATE TABLE secret (
    tenant  TEXT    NOT NULL,
    name    TEXT    NOT NULL,
    version INTEGER NOT NULL, -- how often it was set
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    actor   TEXT    NOT NULL, -- who set it last
    sealed  BLOB    NOT NULL,
    PRIMARY KEY (tenant, name)
) WITHOUT ROWID;

-- What values are found by, sealed; also of values that a secret had.
CREATE TABLE secret_print (
    tenant  TEXT    NOT NULL,
    name    TEXT    NOT NULL,
    version INTEGER NOT NULL,
    until   INTEGER NOT NULL, -- 0 while it is the secret's value
    sealed  BLOB    NOT NULL,
    PRIMARY KEY (tenant, name, version)
) WITHOUT ROWID;

-- +goose Down
DROP TABLE secret_print;
DROP TABLE secret;
DROP TABLE secret_key;
