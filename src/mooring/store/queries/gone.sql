-- What is stored of variants that are in no plan. `known` is a JSON array of those that are in the plan.

-- name: let_go
-- Listings and eras go a month after their variant did; a server that comes back later is listed anew. Pins stay: they
-- say what a person approved, and a server that comes back is not to be trusted unseen.
DELETE FROM gone WHERE variant IN (SELECT value FROM json_each(:known));
INSERT INTO gone (variant, since)
SELECT variant, :now FROM (SELECT variant FROM listings UNION SELECT variant FROM eras)
WHERE variant NOT IN (SELECT value FROM json_each(:known))
ON CONFLICT DO NOTHING;
DELETE FROM listings
WHERE taken_at < :now - 30 * 86400 AND variant IN (SELECT variant FROM gone WHERE since < :now - 30 * 86400);
DELETE FROM eras
WHERE seen_at < :now - 30 * 86400 AND variant IN (SELECT variant FROM gone WHERE since < :now - 30 * 86400);
DELETE FROM gone WHERE variant NOT IN (SELECT variant FROM listings UNION SELECT variant FROM eras);
