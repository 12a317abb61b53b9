-- What could be run, from every source. An entry that its source no longer has keeps its row, with the time it went:
-- its first day is remembered when it comes back, and a mount of it can still be explained.
CREATE TABLE catalog (
    key INTEGER PRIMARY KEY,
    source TEXT NOT NULL,
    id TEXT NOT NULL,
    digest TEXT NOT NULL,
    compact TEXT NOT NULL,
    words TEXT NOT NULL,
    official INTEGER NOT NULL,
    featured INTEGER NOT NULL,
    popularity REAL NOT NULL,
    first_seen REAL NOT NULL,
    changed_at REAL NOT NULL,
    seen_in INTEGER NOT NULL,
    gone_at REAL,
    entry TEXT NOT NULL, -- last: whoever reads the others need not go through it
    UNIQUE (source, id)
);

CREATE INDEX catalog_ids ON catalog (id);

CREATE INDEX catalog_compact ON catalog (compact);

-- What filters ask for: "category" or "tag", in lower case.
CREATE TABLE catalog_labels (
    kind TEXT NOT NULL,
    label TEXT NOT NULL,
    key INTEGER NOT NULL,
    PRIMARY KEY (kind, label, key)
) WITHOUT ROWID;

CREATE INDEX catalog_label_keys ON catalog_labels (key);

-- The stems of living entries' words; rowid is catalog.key. Stems are made by catalog.words, so that the number of
-- entries that have one can be looked up before it is searched for.
CREATE VIRTUAL TABLE catalog_texts USING fts5 (names, labels, description, tools, tokenize = 'unicode61');

CREATE VIRTUAL TABLE catalog_stems USING fts5vocab (catalog_texts, 'col');

-- When each source was asked, and what came of it. `mark` is what the source wants to be told next time.
CREATE TABLE catalog_sources (
    name TEXT PRIMARY KEY,
    place TEXT NOT NULL,
    mark TEXT NOT NULL,
    pass INTEGER NOT NULL,
    tried_at REAL NOT NULL,
    refreshed_at REAL,
    complete_at REAL,
    error TEXT NOT NULL,
    problems TEXT NOT NULL
) WITHOUT ROWID;
