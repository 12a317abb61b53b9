-- Facts about the store itself, such as which Mooring wrote it last. Every later schema keeps this table as it is.
CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

-- Access keys; the token itself is nowhere. Revoked rows stay, so that an id never comes back.
CREATE TABLE keys (
    id TEXT PRIMARY KEY,
    hash BLOB NOT NULL UNIQUE,
    workspace TEXT NOT NULL,
    name TEXT NOT NULL,
    created_at REAL NOT NULL,
    expires_at REAL,
    scopes TEXT NOT NULL,
    variant TEXT,
    tools TEXT NOT NULL,
    revoked_at REAL
);

CREATE UNIQUE INDEX living_key_names ON keys (workspace, name) WHERE revoked_at IS NULL AND name <> '';

-- What a server offered when it was last asked: by definition, protocol era, declared capabilities, and identity where
-- the server authorises by it.
CREATE TABLE listings (
    variant TEXT NOT NULL,
    digest TEXT NOT NULL,
    era TEXT NOT NULL,
    capabilities TEXT NOT NULL,
    identity TEXT NOT NULL,
    listing BLOB NOT NULL,
    taken_at REAL NOT NULL,
    PRIMARY KEY (variant, digest, era, capabilities, identity)
);

-- Which protocol era a server turned out to speak, so that its next start need not probe.
CREATE TABLE eras (
    variant TEXT NOT NULL,
    digest TEXT NOT NULL,
    era TEXT NOT NULL,
    version TEXT NOT NULL,
    seen_at REAL NOT NULL,
    PRIMARY KEY (variant, digest)
);
