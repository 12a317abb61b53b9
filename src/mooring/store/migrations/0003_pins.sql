-- The definitions of tools as they were first seen or last approved. The row with tool '' says that the variant was
-- seen; a tool without a definition appeared later and was not approved yet; pending is what a tool is now, when that
-- differs.
CREATE TABLE pins (
    variant TEXT NOT NULL,
    tool TEXT NOT NULL,
    definition TEXT,
    pending TEXT,
    why TEXT NOT NULL,
    seen_at REAL NOT NULL,
    PRIMARY KEY (variant, tool)
) WITHOUT ROWID;
