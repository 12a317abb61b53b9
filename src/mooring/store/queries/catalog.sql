-- The catalog, for catalog.shelf. `entries` is a JSON array of objects, `ids` one of texts; other lists likewise.

-- name: catalog_put
-- What changed leaves the indexes first, and enters them again with its new words; what did not is only marked as seen.
DELETE FROM catalog_texts WHERE rowid IN (
    SELECT catalog.key FROM json_each(:entries) AS new
    CROSS JOIN catalog ON source = :source AND catalog.id = new.value ->> 'id'
    WHERE digest <> new.value ->> 'digest' OR gone_at IS NOT NULL
);
DELETE FROM catalog_labels WHERE key IN (
    SELECT catalog.key FROM json_each(:entries) AS new
    CROSS JOIN catalog ON source = :source AND catalog.id = new.value ->> 'id'
    WHERE digest <> new.value ->> 'digest' OR gone_at IS NOT NULL
);
INSERT INTO catalog (
    source, id, digest, entry, compact, words, official, featured, popularity, first_seen, changed_at, seen_in
)
SELECT
    :source, value ->> 'id', value ->> 'digest', value ->> 'entry', value ->> 'compact', value ->> 'words',
    value ->> 'official', value ->> 'featured', value ->> 'popularity', :now, :now, :pass
FROM json_each(:entries)
WHERE true
ON CONFLICT (source, id) DO UPDATE SET
    changed_at = iif(digest = excluded.digest AND gone_at IS NULL, changed_at, excluded.changed_at),
    digest = excluded.digest,
    entry = excluded.entry,
    compact = excluded.compact,
    words = excluded.words,
    official = excluded.official,
    featured = excluded.featured,
    popularity = excluded.popularity,
    seen_in = excluded.seen_in,
    gone_at = NULL;
INSERT INTO catalog_texts (rowid, names, labels, description, tools)
SELECT catalog.key, new.value ->> 'names', new.value ->> 'labels', new.value ->> 'description', new.value ->> 'tools'
FROM json_each(:entries) AS new
CROSS JOIN catalog ON source = :source AND catalog.id = new.value ->> 'id'
WHERE NOT EXISTS (SELECT 1 FROM catalog_texts AS old WHERE old.rowid = catalog.key);
INSERT OR IGNORE INTO catalog_labels (kind, label, key)
SELECT 'category', label.value, catalog.key
FROM json_each(:entries) AS new
CROSS JOIN catalog ON source = :source AND catalog.id = new.value ->> 'id', json_each(new.value, '$.categories') AS label
UNION ALL
SELECT 'tag', label.value, catalog.key
FROM json_each(:entries) AS new
CROSS JOIN catalog ON source = :source AND catalog.id = new.value ->> 'id', json_each(new.value, '$.tags') AS label;

-- name: catalog_gone
-- The source no longer has these.
DELETE FROM catalog_texts WHERE rowid IN (
    SELECT key FROM catalog WHERE source = :source AND id IN (SELECT value FROM json_each(:ids))
);
DELETE FROM catalog_labels WHERE key IN (
    SELECT key FROM catalog WHERE source = :source AND id IN (SELECT value FROM json_each(:ids))
);
UPDATE catalog SET gone_at = :now
WHERE source = :source AND gone_at IS NULL AND id IN (SELECT value FROM json_each(:ids));

-- name: catalog_sweep
-- A complete listing has ended: what it did not name is gone.
DELETE FROM catalog_texts WHERE rowid IN (SELECT key FROM catalog WHERE source = :source AND seen_in <> :pass);
DELETE FROM catalog_labels WHERE key IN (SELECT key FROM catalog WHERE source = :source AND seen_in <> :pass);
UPDATE catalog SET gone_at = :now WHERE source = :source AND gone_at IS NULL AND seen_in <> :pass;

-- name: catalog_forget
-- A source that is configured no more: it has nothing, and is read from the start when it comes back.
DELETE FROM catalog_texts WHERE rowid IN (SELECT key FROM catalog WHERE source = :source);
DELETE FROM catalog_labels WHERE key IN (SELECT key FROM catalog WHERE source = :source);
UPDATE catalog SET gone_at = :now WHERE source = :source AND gone_at IS NULL;
DELETE FROM catalog_sources WHERE name = :source;

-- name: catalog_damaged
UPDATE catalog_sources SET mark = '', refreshed_at = NULL
WHERE name = (SELECT source FROM catalog WHERE key = :key);

-- name: catalog_tried
INSERT INTO catalog_sources (name, place, mark, pass, tried_at, error, problems)
VALUES (:name, :place, '', :pass, :now, '', '[]')
ON CONFLICT (name) DO UPDATE
SET place = excluded.place,
    mark = iif(place = excluded.place, mark, ''),
    pass = excluded.pass,
    tried_at = excluded.tried_at;

-- name: catalog_failed
UPDATE catalog_sources SET error = :error WHERE name = :name;

-- name: catalog_refreshed
UPDATE catalog_sources
SET mark = :mark,
    refreshed_at = :now,
    complete_at = iif(:complete, :now, complete_at),
    error = '',
    problems = iif(:unchanged, problems, :problems)
WHERE name = :name;

-- name: catalog_sources
SELECT name, place, mark, pass, tried_at, refreshed_at, complete_at, error, problems FROM catalog_sources ORDER BY name;

-- name: catalog_counts
-- Per source: living entries, and how many came, changed and went since a given time.
SELECT
    source,
    count(*) FILTER (WHERE gone_at IS NULL),
    count(*) FILTER (WHERE first_seen >= :since),
    count(*) FILTER (WHERE changed_at >= :since AND first_seen < :since),
    count(*) FILTER (WHERE gone_at >= :since)
FROM catalog GROUP BY source ORDER BY source;

-- name: catalog_known
SELECT DISTINCT kind, label FROM catalog_labels ORDER BY kind, label;

-- name: catalog_size
SELECT count(*) FROM catalog WHERE gone_at IS NULL;

-- name: catalog_known_words
-- Of each word whether an entry has it, and the words that follow it in the alphabet, with spaces between them.
SELECT value, value IN (SELECT word FROM catalog_words), (
    SELECT group_concat(word, ' ') FROM (
        SELECT word FROM catalog_words WHERE word > asked.value ORDER BY word LIMIT :following
    )
)
FROM json_each(:words) AS asked;

-- name: catalog_words_of_lengths
-- Of each length in one text, in the order of the index; as rows they would take three times as long.
SELECT value, (
    SELECT group_concat(word, ' ') FROM catalog_words INDEXED BY catalog_word_lengths WHERE length = asked.value
)
FROM json_each(:lengths) AS asked;

-- name: catalog_frequencies
-- How many living entries have a stem, per column.
SELECT term, col, doc FROM json_each(:stems) AS stem CROSS JOIN catalog_stems ON term = stem.value;

-- name: catalog_entry
SELECT key, entry, first_seen, changed_at, gone_at FROM catalog WHERE id = :id ORDER BY source;

-- name: catalog_entries
SELECT key, entry, first_seen FROM catalog WHERE key IN (SELECT value FROM json_each(:keys));

-- name: catalog_find
-- Candidates: those called exactly so, and the best by full text; filters come before the cut-off. Of one word's
-- several ways to be said only the best counts. With weights this large a word counts fully where it stands once:
-- texts of entries are short, and long ones do not say more about fewer things.
WITH hits AS MATERIALIZED (
    SELECT term.value ->> 0 AS concept,
        catalog_texts.rowid AS key,
        -(term.value ->> 1) * bm25(catalog_texts, 60.0, 40.0, 40.0, 20.0) AS score
    FROM json_each(:terms) AS term
    JOIN catalog_texts ON catalog_texts MATCH term.value ->> 2
), best AS MATERIALIZED (
    SELECT key, concept, max(score) AS score FROM hits GROUP BY key, concept
), allowed AS (
    SELECT key, concept, score FROM best WHERE NOT :filtered
    UNION ALL
    SELECT best.key, concept, score FROM best CROSS JOIN catalog ON catalog.key = best.key
    WHERE :filtered AND gone_at IS NULL
        AND (:sources = '[]' OR source IN (SELECT value FROM json_each(:sources)))
        AND official >= :official
        AND featured >= :featured
        AND (:categories = '[]' OR catalog.key IN (
            SELECT key FROM catalog_labels
            WHERE kind = 'category' AND label IN (SELECT value FROM json_each(:categories))
        ))
        AND (:tags = '[]' OR catalog.key IN (
            SELECT key FROM catalog_labels WHERE kind = 'tag' AND label IN (SELECT value FROM json_each(:tags))
        ))
), chosen AS (
    SELECT key FROM allowed GROUP BY key ORDER BY sum(score) * count(*) DESC, key LIMIT :most
), named AS (
    SELECT key FROM chosen
    UNION
    SELECT key FROM catalog
    WHERE (id = :id OR compact IN (:compact, :joined))
        AND gone_at IS NULL
        AND (:sources = '[]' OR source IN (SELECT value FROM json_each(:sources)))
        AND official >= :official
        AND featured >= :featured
        AND (:categories = '[]' OR catalog.key IN (
            SELECT key FROM catalog_labels
            WHERE kind = 'category' AND label IN (SELECT value FROM json_each(:categories))
        ))
        AND (:tags = '[]' OR catalog.key IN (
            SELECT key FROM catalog_labels WHERE kind = 'tag' AND label IN (SELECT value FROM json_each(:tags))
        ))
)
SELECT catalog.key, id, source, compact, words, official, featured, popularity, concept, score
FROM named CROSS JOIN catalog ON catalog.key = named.key LEFT JOIN best ON best.key = catalog.key
ORDER BY catalog.key;

-- name: catalog_all
-- Candidates for an empty question.
SELECT catalog.key, id, source, compact, words, official, featured, popularity, NULL, NULL FROM catalog
WHERE gone_at IS NULL
    AND (:sources = '[]' OR source IN (SELECT value FROM json_each(:sources)))
    AND official >= :official
    AND featured >= :featured
    AND (:categories = '[]' OR catalog.key IN (
        SELECT key FROM catalog_labels
        WHERE kind = 'category' AND label IN (SELECT value FROM json_each(:categories))
    ))
    AND (:tags = '[]' OR catalog.key IN (
        SELECT key FROM catalog_labels WHERE kind = 'tag' AND label IN (SELECT value FROM json_each(:tags))
    ))
ORDER BY featured DESC, official DESC, popularity DESC, id LIMIT :most;
