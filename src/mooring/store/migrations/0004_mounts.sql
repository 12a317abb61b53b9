-- Servers that were added to workspaces at run time; `record` is the whole mount as JSON, secrets as references.
CREATE TABLE mounts (
    workspace TEXT NOT NULL,
    entry TEXT NOT NULL,
    record TEXT NOT NULL,
    mounted_at REAL NOT NULL,
    PRIMARY KEY (workspace, entry)
) WITHOUT ROWID;

-- What agents asked to run and a person has to approve. `digest` is of everything that would be run; the pending have
-- no `approved_at`.
CREATE TABLE approvals (
    id TEXT PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE,
    wish TEXT NOT NULL,
    asked_at REAL NOT NULL,
    approved_at REAL
) WITHOUT ROWID;
