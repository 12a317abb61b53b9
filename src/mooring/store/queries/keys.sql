-- Access keys, for access.keys. Times are epoch seconds; scopes and tools are JSON arrays.

-- name: create_key
-- The key it replaces, if any, ends in the same transaction.
UPDATE keys SET revoked_at = :created_at WHERE id = :replaces AND revoked_at IS NULL;
INSERT INTO keys (id, hash, workspace, name, created_at, expires_at, scopes, variant, tools)
VALUES (:id, :hash, :workspace, :name, :created_at, :expires_at, :scopes, :variant, :tools);

-- name: rotate_key
UPDATE keys SET hash = :hash WHERE id = :id AND revoked_at IS NULL;

-- name: revoke_key
UPDATE keys SET revoked_at = :now WHERE id = :id AND revoked_at IS NULL;

-- name: keys
-- All that may be shown: the living, and those revoked since a given time.
SELECT id, hash, workspace, name, created_at, expires_at, scopes, variant, tools, revoked_at FROM keys
WHERE revoked_at IS NULL OR revoked_at > :revoked_since ORDER BY created_at, id;
