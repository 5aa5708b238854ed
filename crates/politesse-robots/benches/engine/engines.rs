//! Engines to compare, each behind the same trait.

use std::sync::OnceLock;

use politesse_robots::crawler::Crawler;
use politesse_robots::{Binding, RobotsTxt, path_of};
use robotstxt::DefaultMatcher;
use url::Url;

use crate::files::AGENT;

/// robots.txt prepared for one agent.
pub(crate) trait Ready {
    /// Reports whether a URL may be fetched.
    fn allows(&mut self, url: &Asked) -> bool;
}

/// URL in the forms that the engines need.
pub(crate) struct Asked {
    pub(crate) url: String,
    path: String,
}

impl Asked {
    pub(crate) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            path: path_of(url).to_owned(),
        }
    }
}

/// Engine: its name, and the function that prepares a file.
pub(crate) struct Engine {
    pub(crate) name: &'static str,
    pub(crate) ready: fn(&[u8]) -> Option<Box<dyn Ready>>,
    /// Whether the engine parses the file for each question.
    pub(crate) reads_anew: bool,
}

pub(crate) const ENGINES: [Engine; 5] = [
    Engine {
        name: "politesse",
        ready: |body| Some(Box::new(Ours::new(body))),
        reads_anew: false,
    },
    Engine {
        name: "robotxt, path given",
        ready: |body| Some(Box::new(RobotxtPath(robotxt(body)))),
        reads_anew: false,
    },
    Engine {
        name: "robotxt, full URL",
        ready: |body| Some(Box::new(RobotxtUrl(robotxt(body)))),
        reads_anew: false,
    },
    Engine {
        name: "texting_robots",
        ready: |body| {
            let robots = texting_robots::Robot::new(AGENT, body).ok()?;
            Some(Box::new(Texting(robots)))
        },
        reads_anew: false,
    },
    Engine {
        name: "robotstxt",
        ready: |body| Some(Box::new(Google(String::from_utf8_lossy(body).into_owned()))),
        reads_anew: true,
    },
];

pub(crate) fn robotxt(body: &[u8]) -> robotxt::Robots {
    robotxt::Robots::parse(body, AGENT)
}

/// Returns the crawler, derived only once, as a real crawler would do.
pub(crate) fn crawler() -> &'static Crawler {
    static CRAWLER: OnceLock<Crawler> = OnceLock::new();
    CRAWLER.get_or_init(|| Crawler::parse(AGENT))
}

/// Our engine, given the full URL.
pub(crate) struct Ours(Binding);

impl Ours {
    pub(crate) fn new(body: &[u8]) -> Self {
        Self(RobotsTxt::parse(body).binding(crawler()))
    }
}

impl Ready for Ours {
    fn allows(&mut self, url: &Asked) -> bool {
        self.0.judge(path_of(&url.url)).allows()
    }
}

struct RobotxtPath(robotxt::Robots);

impl Ready for RobotxtPath {
    fn allows(&mut self, url: &Asked) -> bool {
        self.0.is_allowed(&url.path)
    }
}

struct RobotxtUrl(robotxt::Robots);

impl Ready for RobotxtUrl {
    fn allows(&mut self, url: &Asked) -> bool {
        Url::parse(&url.url).is_ok_and(|url| self.0.is_url_allowed(&url))
    }
}

struct Texting(texting_robots::Robot);

impl Ready for Texting {
    fn allows(&mut self, url: &Asked) -> bool {
        self.0.allowed(&url.url)
    }
}

/// Google's parser, which parses the file for each question.
struct Google(String);

impl Ready for Google {
    fn allows(&mut self, url: &Asked) -> bool {
        DefaultMatcher::default().one_agent_allowed_by_robots(&self.0, AGENT, &url.url)
    }
}
