-- Tables of the archive, for PostgreSQL 13 or later. Rows contain all values, so that any
-- program can query them. SHA-256 values are hexadecimal. PostgreSQL text cannot contain
-- U+0000, so U+2400 is stored instead.
CREATE TABLE archive (
  version int NOT NULL
);
-- One row per record. `last` is the number up to which all entries have arrived; `newest`
-- and `newest_time` belong to the last decision or event among them.
CREATE TABLE node (
  id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  record text NOT NULL UNIQUE,
  name text NOT NULL,
  begun timestamptz NOT NULL,
  last bigint NOT NULL,
  newest bigint,
  newest_time timestamptz,
  shipped_at timestamptz NOT NULL
);
CREATE TABLE robots (
  sha256 text PRIMARY KEY,
  body bytea NOT NULL
);
CREATE TABLE policy (
  sha256 text PRIMARY KEY,
  json text NOT NULL
);
-- One row per dropped month, with the operating system user who gave the order.
CREATE TABLE removal (
  time timestamptz NOT NULL,
  month text NOT NULL,
  uid bigint,
  user_name text,
  sudo_user text,
  why text NOT NULL
);
-- One row per decision, in the partition of its month (UTC). `sent` and the columns after
-- it are null until the exchange has ended. Redaction sets client, credential, url and
-- reading to null, and also host, unless the robots.txt has the same host.
CREATE TABLE decision (
  node int NOT NULL,
  seq bigint NOT NULL,
  time timestamptz NOT NULL,
  client text,
  credential text,
  user_agent text,
  label text,
  candidates text[] NOT NULL,
  unlisted text[] NOT NULL,
  method text NOT NULL,
  host text,
  url text COLLATE "C",
  verdict text NOT NULL,
  reason text NOT NULL,
  effect text NOT NULL,
  crawler text,
  rule text,
  line bigint,
  agents text[] NOT NULL,
  reading text,
  wait_ms bigint NOT NULL,
  policy text NOT NULL,
  robots_origin text,
  robots_url text,
  robots_token text,
  robots_hops text[],
  robots_status int,
  robots_fetched timestamptz,
  robots_expires timestamptz,
  robots_result text,
  robots_cause text,
  robots_sha256 text,
  robots_charset text,
  tdm text,
  sent bigint,
  status int,
  bytes bigint,
  error text,
  directives text,
  said text,
  purposes text[],
  denials jsonb NOT NULL,
  PRIMARY KEY (node, seq, time)
) PARTITION BY RANGE (time);
CREATE INDEX decision_time ON decision (time);
CREATE INDEX decision_host ON decision (host, time);
-- Prefixes, because an index cannot contain values of more than 2,700 bytes.
CREATE INDEX decision_url ON decision (left(url, 400), time);
CREATE INDEX decision_crawler ON decision (left(lower(crawler COLLATE "C"), 400), time);
CREATE INDEX decision_label ON decision (label, time) WHERE label IS NOT NULL;
CREATE INDEX decision_rule ON decision
  (left(regexp_replace(rule, '^([^:]*:|[^:\s]*\s)\s*', ''), 400), time) WHERE rule IS NOT NULL;
CREATE TABLE event (
  node int NOT NULL,
  seq bigint NOT NULL,
  time timestamptz NOT NULL,
  host text NOT NULL,
  kind text NOT NULL,
  status int,
  until timestamptz NOT NULL,
  incidents bigint NOT NULL,
  actor text,
  reason text,
  sent bigint,
  detail text,
  PRIMARY KEY (node, seq, time)
) PARTITION BY RANGE (time);
CREATE INDEX event_host ON event (host, time);
CREATE VIEW audit_log AS
SELECT n.name AS node_name, d.* FROM decision AS d JOIN node AS n ON n.id = d.node;
