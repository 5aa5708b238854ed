-- Tables of the archive, for PostgreSQL 13 or later. Columns are those of the record
-- (docs/decisions/020-thin-record.md), each entry with the number of its node (`log`),
-- each dictionary value once for all nodes. Text that may hold a zero byte is bytea.
CREATE TABLE archive (
  version int NOT NULL,
  -- Raised when dictionary values are removed: what a node remembers of them ends.
  removals bigint NOT NULL
);
CREATE TABLE node (
  log int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id text NOT NULL UNIQUE,
  name text NOT NULL,
  begun_us bigint NOT NULL,
  before text,
  before_last bigint,
  digest bytea NOT NULL,
  -- Number up to which every entry has arrived, and the time of the newest.
  last bigint NOT NULL,
  last_us bigint,
  shipped_at timestamptz NOT NULL
);
-- Removals of entries, each with its signed note: those of months, and those on a node
-- before the entries had arrived. Entries up to `last` are gone, but for those that have
-- a path in `leaf_path`.
CREATE TABLE removal (
  log int NOT NULL,
  last bigint NOT NULL,
  time_us bigint NOT NULL,
  note text NOT NULL,
  vkey text NOT NULL,
  PRIMARY KEY (log, last)
);
CREATE TABLE body (
  sha256 bytea PRIMARY KEY,
  body bytea NOT NULL
);
CREATE TABLE policy (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  json text NOT NULL,
  sha256 bytea NOT NULL UNIQUE
);
CREATE TABLE snapshot (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  origin text NOT NULL,
  token text,
  url text NOT NULL,
  status bigint,
  fetched_us bigint NOT NULL,
  expires_us bigint NOT NULL,
  result text NOT NULL,
  cause text,
  body bytea,
  hops text,
  charset text,
  sha256 bytea NOT NULL UNIQUE
);
CREATE INDEX snapshot_origin ON snapshot (origin, fetched_us);
CREATE TABLE client (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  address text NOT NULL,
  credential text,
  sha256 bytea NOT NULL UNIQUE
);
CREATE TABLE crawler (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  candidates text NOT NULL,
  user_agent text,
  sha256 bytea NOT NULL UNIQUE
);
CREATE TABLE origin (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  origin text NOT NULL,
  host text NOT NULL,
  sha256 bytea NOT NULL UNIQUE
);
CREATE INDEX origin_host ON origin (host);
CREATE TABLE ruling (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  verdict text NOT NULL,
  reason text NOT NULL,
  effect text NOT NULL,
  line bigint,
  rule bytea,
  groups text NOT NULL,
  crawler text,
  sha256 bytea NOT NULL UNIQUE
);
CREATE TABLE directives (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  value text NOT NULL,
  said text,
  sha256 bytea NOT NULL UNIQUE
);
CREATE TABLE term (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  text text NOT NULL,
  sha256 bytea NOT NULL UNIQUE
);
-- Decisions and their endings are in one partition for each month (UTC) of the
-- decision. References are numbers of the dictionaries above; 0 is a redacted value.
CREATE TABLE decision (
  log int NOT NULL,
  seq bigint NOT NULL,
  time_us bigint NOT NULL,
  client bigint NOT NULL,
  crawler bigint NOT NULL,
  method bigint NOT NULL,
  origin bigint NOT NULL,
  path text NOT NULL,
  ruling bigint NOT NULL,
  reading bytea,
  wait_ms bigint NOT NULL,
  policy bigint NOT NULL,
  snapshot bigint,
  salt bytea NOT NULL,
  leaf bytea NOT NULL,
  PRIMARY KEY (log, seq, time_us)
) PARTITION BY RANGE (time_us);
CREATE INDEX decision_time ON decision (time_us);
CREATE INDEX decision_origin ON decision (origin, time_us);
CREATE INDEX decision_ruling ON decision (ruling, time_us);
CREATE TABLE ending (
  log int NOT NULL,
  decision bigint NOT NULL,
  seq bigint NOT NULL,
  time_us bigint NOT NULL,
  status bigint,
  sent bigint NOT NULL,
  directives bigint,
  bytes bigint NOT NULL,
  error bigint,
  leaf bytea NOT NULL,
  PRIMARY KEY (log, decision, time_us)
) PARTITION BY RANGE (time_us);
CREATE TABLE event (
  log int NOT NULL,
  seq bigint NOT NULL,
  time_us bigint NOT NULL,
  host text NOT NULL,
  kind text NOT NULL,
  status bigint,
  until_us bigint NOT NULL,
  incidents bigint NOT NULL,
  actor bytea,
  reason bytea,
  sent bigint,
  detail text,
  leaf bytea NOT NULL,
  PRIMARY KEY (log, seq)
);
CREATE INDEX event_host ON event (host, time_us);
CREATE TABLE lost_range (
  log int NOT NULL,
  first bigint NOT NULL,
  last bigint NOT NULL,
  time_us bigint NOT NULL,
  digest bytea NOT NULL,
  PRIMARY KEY (log, first)
);
CREATE TABLE leaf_path (
  log int NOT NULL,
  seq bigint NOT NULL,
  path bytea NOT NULL,
  PRIMARY KEY (log, seq)
);
CREATE TABLE seal (
  log int NOT NULL,
  size bigint NOT NULL,
  note text NOT NULL,
  vkey text NOT NULL,
  path bytea,
  PRIMARY KEY (log, size)
);
CREATE TABLE subtree (
  log int NOT NULL,
  part bigint NOT NULL,
  hash bytea NOT NULL,
  PRIMARY KEY (log, part)
);
-- Signed heads over the newest heads of all nodes. `members` has a line for each:
-- id of the record, size, root (Base64).
CREATE TABLE fleet_head (
  n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  members text NOT NULL,
  note text NOT NULL,
  vkey text NOT NULL
);
CREATE VIEW audit_log AS
SELECT n.name AS node, d.log, d.seq, to_timestamp(d.time_us / 1000000.0) AS time, c.address AS client,
       a.user_agent, m.text AS method, o.origin || d.path AS url, o.host, r.verdict, r.reason,
       r.effect, r.line,
       CASE WHEN position('\x00'::bytea IN r.rule) = 0 THEN convert_from(r.rule, 'UTF8') END AS rule,
       r.groups, r.crawler, d.wait_ms, e.status, e.sent, s.value AS directives, e.bytes,
       t.text AS error
FROM decision AS d
JOIN node AS n ON n.log = d.log
LEFT JOIN ending AS e ON e.log = d.log AND e.decision = d.seq AND e.time_us = d.time_us
LEFT JOIN client AS c ON c.id = d.client
LEFT JOIN crawler AS a ON a.id = d.crawler
LEFT JOIN term AS m ON m.id = d.method
LEFT JOIN origin AS o ON o.id = d.origin
LEFT JOIN ruling AS r ON r.id = d.ruling
LEFT JOIN directives AS s ON s.id = e.directives
LEFT JOIN term AS t ON t.id = e.error;
