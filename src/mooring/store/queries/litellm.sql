-- What LiteLLM has of ours. `rows` is a JSON array of [kind, name, id, detail]: `server` (by variant; detail is a
-- LiteLLMServer), `workspace` (id of its team), `sync` (by URL; detail is the epoch second).

-- name: put_litellm
DELETE FROM litellm;
INSERT INTO litellm (kind, name, id, detail)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'), json_extract(value, '$[3]')
FROM json_each(:rows);

-- name: litellm
SELECT kind, name, id, detail FROM litellm ORDER BY kind, name;
