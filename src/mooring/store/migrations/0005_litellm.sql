-- What the last sync with LiteLLM left there; the keys themselves are in the secret store.
CREATE TABLE litellm (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    id TEXT NOT NULL,
    detail TEXT NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;
