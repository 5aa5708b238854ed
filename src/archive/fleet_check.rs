//! Check of the fleet heads: that each was signed by a node, names the one before, and
//! says of each node what that node's own head says.
//!
//! Whether a node's own head fits its entries is found by verifying its record. Does not
//! know the entries.

use std::collections::{BTreeMap, HashMap};

use tokio_postgres::Row;

use super::failure::ArchiveFailure;
use super::fleet_head::{FLEET_ORIGIN, head_text, member_line};
use super::nodes::nodes_of;
use super::reader::NodeRecordsReader;
use crate::audit::head::{RecordHead, key_name};
use crate::audit::note::{NoteKey, SignedNote};
use crate::audit::seal_check::{OutsideHead, SealEvidence};
use crate::decision::digest::Digest;

/// Heads that are read at a time.
const HEADS: i64 = 256;

const FLEET_HEADS: &str = "
SELECT n, members, note, vkey FROM fleet_head WHERE n > $1 ORDER BY n LIMIT $2";

const NEWEST: &str = "SELECT note FROM fleet_head ORDER BY n DESC LIMIT 1";

const NEWEST_OF_NODE: &str = "
SELECT note FROM seal WHERE log = ANY($1) ORDER BY log DESC, size DESC LIMIT 1";

/// Result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FleetCheck {
    /// Fleet heads in the archive.
    pub heads: u64,
    /// Fleet heads from outside that are in the archive as they were exported.
    pub outside: u64,
    /// Findings, a sentence each.
    pub findings: Vec<String>,
}

impl NodeRecordsReader {
    /// Reads the newest fleet head; with the name of a node, the newest head of that.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`].
    pub async fn newest_head(&self, node: Option<&str>) -> Result<Option<String>, ArchiveFailure> {
        let rows = match node {
            None => self.session.query(NEWEST, &[]).await?,
            Some(node) => {
                let nodes = nodes_of(&self.session).await?;
                let logs = super::nodes::ArchiveNode::named(&nodes, node)?;
                self.session.query(NEWEST_OF_NODE, &[&logs]).await?
            }
        };
        Ok(rows.first().map(|row| row.get(0)))
    }

    /// Checks all fleet heads, and compares them with `evidence` from outside.
    ///
    /// # Errors
    ///
    /// [`ArchiveFailure`].
    pub async fn check_fleet_heads(
        &self,
        evidence: &SealEvidence,
    ) -> Result<FleetCheck, ArchiveFailure> {
        let nodes = nodes_of(&self.session).await?;
        let mut chain = FleetChain {
            logs: nodes
                .iter()
                .map(|(log, node)| (node.record.clone(), *log))
                .collect(),
            keys: &evidence.keys,
            outside: outside_of(evidence),
            previous: None,
            newest: BTreeMap::new(),
            check: FleetCheck::default(),
        };
        let mut after = i64::MIN;
        loop {
            let rows = self.session.query(FLEET_HEADS, &[&after, &HEADS]).await?;
            let Some(last) = rows.last() else {
                break;
            };
            after = last.get(0);
            // All that these heads name by one query.
            let own = self.own_heads(&rows, &chain.logs).await?;
            rows.iter().for_each(|row| chain.add(row, &own));
        }
        Ok(chain.end())
    }

    /// Reads the heads of nodes that fleet heads name: the line of each.
    async fn own_heads(
        &self,
        rows: &[Row],
        logs: &HashMap<String, i32>,
    ) -> Result<HashMap<String, OwnHead>, ArchiveFailure> {
        let (mut wanted_logs, mut sizes) = (Vec::new(), Vec::new());
        for row in rows {
            for line in row.get::<_, String>(1).lines() {
                let Some(member) = HeadMember::parse(line) else {
                    continue;
                };
                if let Some(log) = logs.get(&member.record) {
                    wanted_logs.push(*log);
                    sizes.push(member.size.cast_signed());
                }
            }
        }
        let sql = "SELECT n.id, s.note, s.vkey FROM seal AS s JOIN node AS n ON n.log = s.log
                   JOIN unnest($1::int[], $2::bigint[]) AS w (log, size)
                   ON w.log = s.log AND w.size = s.size";
        let found = self.session.query(sql, &[&wanted_logs, &sizes]).await?;
        let head = |row: &Row| {
            let (id, note): (String, String) = (row.get(0), row.get(1));
            Some((member_line(&id, &note)?, OwnHead { vkey: row.get(2) }))
        };
        Ok(found.iter().filter_map(head).collect())
    }
}

/// Head of a node as its own table has it.
struct OwnHead {
    vkey: String,
}

/// Node in a fleet head.
struct HeadMember {
    record: String,
    size: u64,
}

impl HeadMember {
    fn parse(line: &str) -> Option<Self> {
        let (record, rest) = line.split_once(' ')?;
        let (size, _) = rest.split_once(' ')?;
        Some(Self {
            record: record.to_owned(),
            size: size.parse().ok()?,
        })
    }
}

fn outside_of(evidence: &SealEvidence) -> Vec<&OutsideHead> {
    let is_of_fleet = |head: &&OutsideHead| head.note.text().starts_with(FLEET_ORIGIN);
    evidence.heads.iter().filter(is_of_fleet).collect()
}

/// Chain of fleet heads that is checked.
struct FleetChain<'a> {
    /// Numbers of the nodes, by the id of their record.
    logs: HashMap<String, i32>,
    keys: &'a [NoteKey],
    /// Heads from outside that were not met yet.
    outside: Vec<&'a OutsideHead>,
    previous: Option<Digest>,
    /// Size that the last head has of each node.
    newest: BTreeMap<String, u64>,
    check: FleetCheck,
}

impl FleetChain<'_> {
    fn add(&mut self, row: &Row, own: &HashMap<String, OwnHead>) {
        self.check.heads += 1;
        let number: i64 = row.get(0);
        let (members, text, vkey): (String, String, String) = (row.get(1), row.get(2), row.get(3));
        for fault in self.faults(&members, &text, &vkey, own) {
            self.check
                .findings
                .push(format!("fleet head {number}: {fault}"));
        }
        // Of the note as it stands: a fault is told of one head, not of all behind it.
        self.previous = Some(Digest::of(text.as_bytes()));
        let before = self.outside.len();
        self.outside.retain(|head| head.note.to_string() != text);
        self.check.outside += (before - self.outside.len()) as u64;
    }

    /// Returns what is wrong with a head.
    fn faults(
        &mut self,
        members: &str,
        text: &str,
        vkey: &str,
        own: &HashMap<String, OwnHead>,
    ) -> Vec<String> {
        let mut faults = Vec::new();
        let (Ok(note), Ok(key)) = (text.parse::<SignedNote>(), vkey.parse::<NoteKey>()) else {
            return vec!["it is damaged".to_owned()];
        };
        let lines: Vec<String> = members.lines().map(str::to_owned).collect();
        // The key beside a head may be anybody's: it is to be that of a node's own head.
        let is_of_node = lines.iter().any(|line| {
            let signs = |head: &OwnHead| head.vkey == vkey;
            own.get(line).is_some_and(signs)
                && HeadMember::parse(line)
                    .is_some_and(|member| key_name(&member.record) == key.name())
        });
        if note.verify(&key).is_err() || !is_of_node {
            faults.push("it is not signed by the key of a node that it names".to_owned());
        } else if !self.keys.is_empty() && !self.keys.contains(&key) {
            faults.push("it is not signed by a key that --key names".to_owned());
        }
        match note.text().parse::<RecordHead>() {
            Err(_) => faults.push("it is damaged".to_owned()),
            Ok(head) => {
                if head.previous != self.previous {
                    faults.push("it is not chained to the head before it".to_owned());
                }
                if head_text(&lines, head.time, head.previous) != note.text() {
                    faults.push("its nodes are not those that it was signed for".to_owned());
                }
            }
        }
        for line in &lines {
            faults.extend(self.member_fault(line, own));
        }
        faults
    }

    /// Returns what is wrong with one node in a head.
    fn member_fault(&mut self, line: &str, own: &HashMap<String, OwnHead>) -> Option<String> {
        let Some(HeadMember { record, size }) = HeadMember::parse(line) else {
            return Some("a line of its nodes is damaged".to_owned());
        };
        let before = self.newest.insert(record.clone(), size).unwrap_or_default();
        if !self.logs.contains_key(&record) {
            return Some(format!(
                "the record {record} is not in the archive any more"
            ));
        }
        // Entries go by age alone, and their numbers stay.
        if size < before {
            return Some(format!(
                "the record {record} had {before} entries before, and has {size}"
            ));
        }
        let is_own = own.contains_key(line);
        (!is_own).then(|| {
            format!("the head of {size} entries of the record {record} is not among its own")
        })
    }

    fn end(mut self) -> FleetCheck {
        for head in self.outside {
            self.check.findings.push(format!(
                "{}: this fleet head is not in the archive: it was cut, or this is another archive",
                head.name
            ));
        }
        self.check
    }
}
