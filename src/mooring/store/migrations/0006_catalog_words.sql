-- What living entries are called and labelled, each word once: what misspelt words of a question are compared with.
-- `uses`: how many names and labels have it. Triggers keep it, in the transaction that changes an entry, so that nothing
-- has to be gathered when somebody searches. (A trigger is one statement: inside it no line ends with a semicolon.)
CREATE TABLE catalog_words (
    word TEXT PRIMARY KEY,
    length INTEGER NOT NULL,
    uses INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX catalog_word_lengths ON catalog_words (length, word);

-- Only to be written to: all words of a text have so many uses more, or with -1 fewer.
CREATE VIEW catalog_said AS SELECT '' AS text, 0 AS uses WHERE false;

CREATE TRIGGER catalog_said_words INSTEAD OF INSERT ON catalog_said BEGIN
    INSERT INTO catalog_words (word, length, uses)
    SELECT value, length(value), new.uses FROM json_each('[' || replace(json_quote(new.text), ' ', '","') || ']')
    WHERE length(value) > 1
    ON CONFLICT (word) DO UPDATE SET uses = uses + excluded.uses
    ; DELETE FROM catalog_words WHERE new.uses < 0 AND uses = 0 AND word IN (
        SELECT value FROM json_each('[' || replace(json_quote(new.text), ' ', '","') || ']')
    )
    ; END;

CREATE TRIGGER catalog_named AFTER INSERT ON catalog WHEN new.gone_at IS NULL BEGIN
    INSERT INTO catalog_said VALUES (new.words, 1)
    ; END;

CREATE TRIGGER catalog_renamed AFTER UPDATE OF words, gone_at ON catalog
WHEN old.words <> new.words OR (old.gone_at IS NULL) <> (new.gone_at IS NULL) BEGIN
    INSERT INTO catalog_said SELECT old.words, -1 WHERE old.gone_at IS NULL
    ; INSERT INTO catalog_said SELECT new.words, 1 WHERE new.gone_at IS NULL
    ; END;

CREATE TRIGGER catalog_labelled AFTER INSERT ON catalog_labels BEGIN
    INSERT INTO catalog_said VALUES (new.label, 1)
    ; END;

CREATE TRIGGER catalog_unlabelled AFTER DELETE ON catalog_labels BEGIN
    INSERT INTO catalog_said VALUES (old.label, -1)
    ; END;

-- What is there already.
INSERT INTO catalog_said
SELECT words, 1 FROM catalog WHERE gone_at IS NULL UNION ALL SELECT label, 1 FROM catalog_labels;

-- How many entries there are, and what happened to them, without going through their texts.
CREATE INDEX catalog_times ON catalog (source, gone_at, first_seen, changed_at);
