-- name: put_meta
INSERT INTO meta (name, value) VALUES (:name, :value)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: meta
SELECT value FROM meta WHERE name = :name;
