//! Engine for robots.txt: judges paths by RFC 9309 or one of its predecessors, and names
//! the line that decided.
//!
//! # At a glance
//!
//! ```
//! use politesse_robots::crawler::Crawler;
//! use politesse_robots::{Judgement, RobotsTxt};
//!
//! let robots = RobotsTxt::parse(b"User-agent: *\nDisallow: /private\n");
//! let binding = robots.binding(&Crawler::parse("ExampleBot/1.0"));
//! let Judgement::Rule(rule) = binding.judge("/private/page") else { panic!() };
//! assert_eq!((rule.line(), &*rule.text()), (2, "Disallow: /private"));
//! assert!(binding.judge("/public").allows());
//! ```
//!
//! Parsing never fails: an unreadable line becomes a note ([`RobotsTxt::notes`]).
//! Judging a path allocates nothing unless the path has to be rewritten.
//!
//! # Main types
//!
//! - [`RobotsTxt`] is one file. [`RobotsTxt::parse`] reads its first 500 KiB,
//!   the minimum that RFC 9309, section 2.5, requires of a parser.
//! - [`crawler::Crawler`] is the program whose requests are judged.
//!   [`crawler::Crawler::parse`] takes a product token or a complete User-Agent, and
//!   finds the names that a file may use for the crawler.
//! - [`RobotsTxt::binding`] finds the groups that bind the crawler (section
//!   2.2.1). [`Binding::judge`] judges a path with its query, exactly as a request
//!   sends them (section 2.2.2); [`path_of`] extracts both from a URL.
//! - [`RulesByOrigin`] stores the files of many origins, each until it expires.
//!   [`origin::Target`] is a URL at one of these origins.
//! - [`Pattern`] is a path pattern outside a file.
//!
//! # Questions it answers
//!
//! | Question | Answer |
//! |---|---|
//! | May this path be fetched? | [`Binding::judge`], [`Judgement::allows`] |
//! | Which line decided? | [`Judgement::rule`], [`Rule::line`], [`Rule::text`] |
//! | Which other rules matched, and why did they not decide? | [`Binding::competing`], [`Binding::outranked`] |
//! | Which names does the group have? | [`Binding::names`] |
//! | How long to wait between requests? | [`Binding::crawl_delay`], [`Binding::pace`] |
//! | Which sitemaps are there, which host is preferred? | [`RobotsTxt::sitemaps`], [`RobotsTxt::host`] |
//! | What else does the file say? | [`RobotsTxt::records`], [`RobotsTxt::usage_lines`] |
//! | What is wrong with it? | [`RobotsTxt::notes`], [`RobotsTxt::joined`] |
//! | How else may a server read this path? | [`reading`] |
//!
//! ```
//! use politesse_robots::RobotsTxt;
//! use politesse_robots::crawler::Crawler;
//!
//! let robots = RobotsTxt::parse(
//!     b"Sitemap: https://h.test/map.xml\nUser-agent: *\nCrawl-delay: 2.5\n\
//!       Disallow: /a\nAllow: /a/b\n",
//! );
//! assert_eq!(robots.sitemaps().next().as_deref(), Some("https://h.test/map.xml"));
//! let binding = robots.binding(&Crawler::parse("ExampleBot"));
//! assert_eq!(binding.crawl_delay(), Some(2.5));
//! let lines: Vec<u32> = binding.competing("/a/b/c").iter().map(|rule| rule.line()).collect();
//! assert_eq!(lines, [5, 4]);
//! ```
//!
//! # Undecided judgements
//!
//! A file can be written so that matching takes long. Each judgement therefore has a
//! budget. Beyond it, the answer is [`Judgement::Undecided`], which does not allow.
//!
//! # Dialects
//!
//! [`Dialect`] selects the specification that a file is read by: RFC 9309 (the default),
//! its draft of 2019, the Internet-Draft of 1996, the consensus of 1994, Sean
//! Conner's extension, or RFC 9309 as Google's parser (google/robotstxt) reads it.
//!
//! # Out of scope
//!
//! The crate does not fetch files: it does no IO, reads no clock and spawns nothing.
//! RFC 9309, section 2.3.1, says which server responses allow everything and which
//! allow nothing; [`RulesByOrigin`] has a method for each.

pub mod crawler;
mod engine;
mod file_source;
pub mod host_pattern;
pub mod origin;
mod pace;
pub mod reading;

pub use engine::*;
pub use file_source::{Charset, FileSource, UnknownCharset};
pub use origin::path_of;
pub use pace::{PaceRecords, PauseRecord, RequestRate, VisitTime};
