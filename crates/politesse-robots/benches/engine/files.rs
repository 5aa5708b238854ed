//! Files to measure, from a seeded generator, with the shapes of real files.

use std::fmt::Write as _;
use std::ops::Range;

/// File, and the URLs to judge by it.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) body: Vec<u8>,
    pub(crate) urls: Vec<String>,
}

impl Case {
    fn new(name: &str, body: String, paths: &[&str]) -> Self {
        let url = |path: &&str| format!("https://www.example.com{path}");
        Self {
            name: name.to_owned(),
            body: body.into_bytes(),
            urls: paths.iter().map(url).collect(),
        }
    }
}

/// Agent of all questions.
pub(crate) const AGENT: &str = "ExampleBot";

/// Generator of the same pseudorandom numbers in each run (xorshift*).
pub(crate) struct Seed(pub(crate) u64);

impl Seed {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn within(&mut self, range: Range<usize>) -> usize {
        range.start + self.below(range.len())
    }

    fn percent(&mut self, share: usize) -> bool {
        self.below(1000) < share * 10
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

const WORDS: [&str; 48] = [
    "search",
    "admin",
    "user",
    "cart",
    "checkout",
    "account",
    "login",
    "private",
    "tmp",
    "cgi-bin",
    "includes",
    "modules",
    "profiles",
    "scripts",
    "themes",
    "filter",
    "tips",
    "node",
    "add",
    "comment",
    "reply",
    "password",
    "register",
    "logout",
    "wp-admin",
    "wp-content",
    "plugins",
    "feed",
    "trackback",
    "category",
    "tag",
    "author",
    "print",
    "pdf",
    "images",
    "assets",
    "api",
    "v1",
    "docs",
    "help",
    "news",
    "archive",
    "product",
    "catalog",
    "review",
    "compare",
    "wishlist",
    "sort",
];

/// Returns the files for the named rows of the table.
pub(crate) fn cases() -> Vec<Case> {
    vec![
        small(),
        prefixes(),
        large(),
        wildcards(),
        hostile("a*a*a*b"),
        hostile("aaaaaaaa*b"),
    ]
}

fn small() -> Case {
    let body = "User-agent: *\nDisallow: /search\nAllow: /search/about\nDisallow: /*.pdf$\n\n\
        User-agent: ExampleBot\nUser-agent: OtherBot\nDisallow: /private\nAllow: /private/open\n\
        Disallow: /tmp/\nDisallow: /cart\nDisallow: /*?session=\nCrawl-delay: 2\n\n\
        User-agent: BadBot\nDisallow: /\nSitemap: https://www.example.com/sitemap.xml\n";
    let paths = [
        "/",
        "/index.html",
        "/private/open/page.html",
        "/private/file",
        "/tmp/a",
        "/tmpfile",
        "/cart/checkout?step=2",
        "/products/shoes/running-shoe-42",
        "/a?session=1",
        "/search?q=x",
    ];
    Case::new("small (10 rules, 3 groups)", body.to_owned(), &paths)
}

fn prefixes() -> Case {
    let mut seed = Seed(5000);
    let mut body = String::from("User-agent: *\n");
    let mut paths = Vec::new();
    for number in 0..5000 {
        let path = format!("/{}/{}/{number}", seed.pick(&WORDS), seed.pick(&WORDS));
        let _ = writeln!(body, "Disallow: {path}");
        if number % 500 == 7 {
            paths.push(format!("{path}/page.html"));
            paths.push(format!(
                "/{}/{}/x{number}",
                seed.pick(&WORDS),
                seed.pick(&WORDS)
            ));
        }
    }
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    Case::new("5,000 prefixes", body, &paths)
}

/// Returns a file like that of a large vendor's documentation: 19,000 deep and similar
/// folders.
fn large() -> Case {
    let mut seed = Seed(19_000);
    let mut body = String::from("User-agent: *\n");
    let mut paths = Vec::new();
    let mut number = 0;
    while body.len() < 511_900 {
        let (one, two) = (seed.pick(&WORDS), seed.pick(&WORDS));
        let path = format!("/cd/{one}{:02}_{number}/{two}", number % 97);
        let _ = writeln!(body, "Disallow: {path}");
        number += 1;
        if number % 1900 == 11 {
            paths.push(format!("{path}/toc.htm"));
            paths.push(format!("/cd/{two}{:02}_x/index.htm", number % 97));
        }
    }
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    Case::new("19,000 rules (500 KiB)", body, &paths)
}

fn wildcards() -> Case {
    let mut seed = Seed(1000);
    let mut body = String::from("User-agent: *\n");
    for number in 0..1000 {
        let (one, two) = (seed.pick(&WORDS), seed.pick(&WORDS));
        let _ = match number % 5 {
            0 => writeln!(body, "Disallow: /*?{one}{number}="),
            1 => writeln!(body, "Disallow: /*/{one}/{two}{number}"),
            2 => writeln!(body, "Disallow: /*.{one}{number}$"),
            3 => writeln!(body, "Disallow: /{one}/*/{two}{number}/"),
            _ => writeln!(body, "Disallow: *{one}{number}*{two}"),
        };
    }
    let paths = [
        "/",
        "/products/shoes/running-shoe-42",
        "/search/a/sort13/",
        "/help?sort5=1&page=2",
        "/category/tag/author/archive.html",
        "/docs/v1/api?filter=red&compare=1",
        "/news/2026/11/20/a-long-title-with-many-words-in-it.html",
        "/x.feed7",
        "/user/1/admin",
        "/images/logo.png",
    ];
    Case::new("1,000 wildcards", body, &paths)
}

/// Returns a file and a URL built to be slow.
fn hostile(shape: &str) -> Case {
    let mut body = String::from("User-agent: *\n");
    let mut number = 0;
    while body.len() < 511_900 {
        let _ = writeln!(body, "Disallow: /*{shape}{number:05}");
        number += 1;
    }
    let path = format!("/{}", "a".repeat(2000));
    Case::new(&format!("hostile, /*{shape}N, 2 KB URL"), body, &[&path])
}

/// Returns files and URLs that exceed the budget of a judgement.
pub(crate) fn endless() -> Vec<Case> {
    let bytes = |seed: &mut Seed, of: &[&str], count: usize| -> String {
        (0..count).map(|_| seed.pick(of).to_owned()).collect()
    };
    let file = |rule: &mut dyn FnMut(&mut Seed) -> String| {
        let mut seed = Seed(77);
        let mut body = String::from("User-agent: *\n");
        while body.len() < 511_000 {
            let _ = writeln!(body, "Disallow: {}", rule(&mut seed));
        }
        body
    };
    let stars = ["*a", "*b", "*c", "*d", "*e", "*f", "*g", "*h"];
    let letters = ["a", "b"];
    let path = format!("/{}", "abcdefgh".repeat(250));
    let two = format!("/{}", bytes(&mut Seed(5), &letters, 2000));
    let folded = format!("/?{}", "%2F%3D%26".repeat(250));
    vec![
        Case::new(
            "short literals, none last",
            file(&mut |seed| format!("/{}*0", bytes(seed, &stars, 6))),
            &[&path],
        ),
        Case::new(
            "few bytes, three in a row",
            file(&mut |seed| format!("/*{}*0", bytes(seed, &letters, 14))),
            &[&two],
        ),
        Case::new(
            "a node a byte",
            file(&mut |seed| {
                let depth = seed.within(1..120);
                format!("/{}*{}0", "a".repeat(depth), bytes(seed, &letters, 6))
            }),
            &[&format!("/{}", "a".repeat(2000))],
        ),
        Case::new(
            "escapes everywhere",
            file(&mut |seed| format!("/*{}*%2Fx", bytes(seed, &["%2F", "%3D", "%26"], 4))),
            &[&folded],
        ),
        Case::new(
            "one long rule",
            format!("User-agent: *\nDisallow: /{}b", "*a".repeat(250_000)),
            &[&format!("/{}", "a".repeat(16_000))],
        ),
    ]
}

/// Returns many small files with the distribution of real ones: the median has 12 rules, a
/// tenth have 81 or more, one in a hundred has 480; a fifth of the rules have wildcards; a
/// third of the files have CRLF, and some have a BOM, HTML or NULs.
pub(crate) fn corpus() -> Vec<Case> {
    let mut seed = Seed(9309);
    (0..2000).map(|number| file(number, &mut seed)).collect()
}

fn file(number: usize, seed: &mut Seed) -> Case {
    if seed.percent(3) {
        let page = "<!DOCTYPE html>\n<html><head><title>Not found</title></head></html>\n";
        return Case::new(&format!("html {number}"), page.repeat(20), &["/", "/a/b"]);
    }
    let rules = match seed.below(100) {
        0..50 => seed.within(0..12),
        50..90 => seed.within(12..81),
        90..99 => seed.within(81..480),
        _ => seed.within(480..1500),
    };
    let mut lines = vec!["# robots.txt".to_owned(), "User-agent: *".to_owned()];
    let mut paths = Vec::new();
    for rule in 0..rules {
        if seed.percent(3) {
            lines.push(String::new());
            lines.push(format!("User-agent: {}bot", seed.pick(&WORDS)));
        }
        let path = rule_path(seed);
        let key = if seed.percent(15) {
            "Allow"
        } else {
            "Disallow"
        };
        lines.push(format!("{key}: {path}"));
        if rule < 8 {
            paths.push(path.replace('*', "x").replace('$', ""));
        }
    }
    lines.push("Sitemap: https://www.example.com/sitemap.xml".to_owned());
    let end = if seed.percent(32) { "\r\n" } else { "\n" };
    let mark = if seed.percent(2) { "\u{feff}" } else { "" };
    let body = format!("{mark}{}{end}", lines.join(end));
    for path in [
        "/",
        "/news/2026/11/a-title.html",
        "/catalog?sort=price&page=2",
    ] {
        paths.push(path.to_owned());
    }
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    Case::new(&format!("made {number}"), body, &paths)
}

fn rule_path(seed: &mut Seed) -> String {
    let mut path = String::new();
    for _ in 0..seed.within(1..4) {
        let _ = write!(path, "/{}", seed.pick(&WORDS));
        if seed.percent(20) {
            let _ = write!(path, "-{}", seed.below(1000));
        }
    }
    match seed.below(100) {
        0..8 => format!("/*{path}"),
        8..13 => format!("{path}/*/{}", seed.pick(&WORDS)),
        13..16 => format!("/*?{}=", seed.pick(&WORDS)),
        16..18 => format!("/*.{}$", seed.pick(&WORDS)),
        18..19 => format!("{path}/%7Euser"),
        19..60 => format!("{path}/"),
        _ => path,
    }
}
