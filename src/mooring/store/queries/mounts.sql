-- Mounts that were added at run time, and approvals, for serve.active and serve.consent.

-- name: put_mount
INSERT INTO mounts (workspace, entry, record, mounted_at) VALUES (:workspace, :entry, :record, :mounted_at)
ON CONFLICT (workspace, entry) DO UPDATE SET record = excluded.record;

-- name: drop_mount
DELETE FROM mounts WHERE workspace = :workspace AND entry = :entry;

-- name: mounts
SELECT record FROM mounts ORDER BY mounted_at, workspace, entry;

-- name: put_approval
INSERT INTO approvals (id, digest, wish, asked_at, approved_at) VALUES (:id, :digest, :wish, :asked_at, :approved_at)
ON CONFLICT (id) DO UPDATE SET approved_at = excluded.approved_at;

-- name: drop_approval
DELETE FROM approvals WHERE id = :id;

-- name: approvals
SELECT id, digest, wish, asked_at, approved_at FROM approvals ORDER BY asked_at, id;
