//! Crawlers and their product tokens: the names that a robots.txt may use for a crawler.
//!
//! RFC 9309, section 2.2.1, matches groups by a product token that "SHOULD be
//! a substring of the identification string that the crawler sends". A proxy does not
//! know that token, so this module derives it from User-Agent (RFC 9110, section
//! 10.1.5). Does not know which groups a file has.

mod name_text;
mod token;
mod user_agent;

use std::sync::Arc;

pub use self::name_text::decode;
pub use self::token::{InvalidToken, ProductToken};

/// Crawler that sends a request: its candidate tokens in order, and its User-Agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crawler {
    candidates: Arc<[ProductToken]>,
    /// Names in the User-Agent that are not candidates; `None` if there are none.
    unlisted: Option<Arc<[ProductToken]>>,
    user_agent: Option<Arc<str>>,
    naming: Naming,
    is_cut: bool,
}

/// Source of a crawler's tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// The operator's configuration: each token is a name of the crawler.
    Operator,
    /// The User-Agent: each token may be a name of the crawler.
    UserAgent,
}

impl Crawler {
    /// Derives the candidates, in order, from the values of the User-Agent field.
    ///
    /// Ignores names that every browser sends, and uses names of libraries only if there
    /// are no others. If the User-Agent has no usable name, there are no candidates, and
    /// the group of all crawlers (`*`) binds.
    ///
    /// In candidates, a byte that is not valid UTF-8 is decoded as Windows-1252, as in
    /// robots.txt, so that equal bytes give equal names. In [`Crawler::user_agent`], it is
    /// replaced with U+FFFD.
    pub fn from_user_agent<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let values: Vec<&[u8]> = values.into_iter().collect();
        let shown: Vec<String> = values
            .iter()
            .map(|value| String::from_utf8_lossy(value).trim().to_owned())
            .collect();
        let user_agent = shown.join(", ");
        let values: Vec<_> = values.into_iter().map(decode).collect();
        let derived = user_agent::candidates(&values);
        Self {
            candidates: derived.candidates.into(),
            unlisted: None,
            user_agent: (!user_agent.is_empty()).then(|| user_agent.into()),
            naming: Naming::UserAgent,
            is_cut: derived.is_cut,
        }
    }

    /// Creates a crawler with `candidates` from the operator, in that order, regardless of
    /// the User-Agent.
    pub fn known_as(candidates: &[ProductToken], user_agent: Option<&[u8]>) -> Self {
        let said = user_agent.map(|value| String::from_utf8_lossy(value).trim().to_owned());
        Self {
            candidates: candidates.into(),
            unlisted: None,
            user_agent: said.filter(|value| !value.is_empty()).map(Arc::from),
            naming: Naming::Operator,
            is_cut: false,
        }
    }

    /// Creates the crawler of a credential. `candidates` are the names that the operator
    /// has listed for it; other names in its User-Agent are added as unlisted. The site
    /// sees the User-Agent, so the groups for these names bind the crawler as well.
    #[must_use]
    pub fn vouched_for(candidates: &[ProductToken], by_user_agent: &Self) -> Self {
        let names = by_user_agent.candidates.iter();
        let unlisted = names.filter(|name| !candidates.contains(name)).cloned();
        Self {
            candidates: candidates.into(),
            user_agent: by_user_agent.user_agent.clone(),
            naming: Naming::Operator,
            is_cut: by_user_agent.is_cut,
            unlisted: None,
        }
        .with_unlisted(unlisted.collect())
    }

    /// Sets the names of the crawler that are not candidates.
    #[must_use]
    pub fn with_unlisted(self, names: Vec<ProductToken>) -> Self {
        let unlisted = (!names.is_empty()).then(|| names.into());
        Self { unlisted, ..self }
    }

    /// Parses a name that a person typed: a product token or a complete User-Agent. A
    /// product token is itself a valid User-Agent.
    #[must_use]
    pub fn parse(agent: &str) -> Self {
        Self::from_user_agent([agent.as_bytes()])
    }

    /// Restores a crawler from a stored decision. The source of the names is not stored,
    /// and is taken to be the User-Agent.
    #[must_use]
    pub fn restore(candidates: Vec<ProductToken>, user_agent: Option<String>) -> Self {
        Self {
            candidates: candidates.into(),
            unlisted: None,
            user_agent: user_agent.map(Arc::from),
            naming: Naming::UserAgent,
            is_cut: false,
        }
    }

    /// Returns the tokens that may name the crawler, the likeliest first.
    #[must_use]
    pub fn candidates(&self) -> &[ProductToken] {
        &self.candidates
    }

    /// Returns the candidates as shared, so that a cache can keep them without copying.
    pub(super) fn shared_candidates(&self) -> &Arc<[ProductToken]> {
        &self.candidates
    }

    /// Returns the User-Agent as shared, so that a cache can keep it without copying.
    pub(super) fn shared_user_agent(&self) -> Option<&Arc<str>> {
        self.user_agent.as_ref()
    }

    /// Returns the names in the User-Agent of a crawler with a credential that the operator
    /// has not listed for it. A group for one of these names binds the crawler in addition
    /// to the groups for the candidates.
    #[must_use]
    pub fn unlisted(&self) -> &[ProductToken] {
        self.unlisted.as_deref().unwrap_or_default()
    }

    /// Returns the source of the candidates.
    #[must_use]
    pub fn naming(&self) -> Naming {
        self.naming
    }

    /// Returns the first candidate.
    #[must_use]
    pub fn token(&self) -> Option<&ProductToken> {
        self.candidates.first()
    }

    /// Reports whether the User-Agent has names that could not become candidates, because
    /// there are too many or because one is not a valid token. It is then unknown which
    /// rules bind the crawler.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Returns the User-Agent, with invalid UTF-8 replaced; `None` if none was sent.
    #[must_use]
    pub fn user_agent(&self) -> Option<&str> {
        self.user_agent.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(crawler: &Crawler) -> Vec<&str> {
        crawler
            .candidates()
            .iter()
            .map(ProductToken::as_str)
            .collect()
    }

    /// One test per row: `"User-Agent" => ["candidate"];`
    macro_rules! deriving {
        ($($name:ident: $agent:literal => $expected:expr;)*) => {$(
            #[test]
            fn $name() {
                let expected: &[&str] = &$expected;
                assert_eq!(candidates(&Crawler::parse($agent)), expected);
            }
        )*};
    }

    // RFC 9110, section 10.1.5; the position of the name is convention.
    deriving! {
        a_bare_token_is_its_own_candidate: "Example_Bot-2.x" => ["Example_Bot-2.x"];
        the_name_follows_compatible: "Mozilla/5.0 (compatible; ExampleBot/0.1; https://www.example.com/bot.html)" => ["ExampleBot"];
        compatible_may_be_outside_a_comment: "Mozilla/5.0 (KHTML, like Gecko); compatible; FooBot/1.0; +https://f.example" => ["FooBot"];
        a_name_may_follow_the_browser: "Mozilla/5.0 (Linux; Android 6.0.1; Nexus 5X Build/MMB29P) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/1.2 Mobile Safari/537.36 (compatible; FooBot/2.1; +http://f.example)" => ["FooBot"];
        a_mail_address_is_no_name: "Mozilla/5.0 (Linux; Android 5.0) Mobile Safari/537.36 (compatible; Fooider; foo@f.example)" => ["Fooider"];
        a_name_with_a_contact_needs_no_compatible: "Mozilla/5.0 (Macintosh) Safari/1 (FooBot/0.1; +http://f.example)" => ["FooBot"];
        a_product_is_found_before_a_comment_with_compatible: "FooBot/1.0 (compatible; Mozilla/5.0; Apache-HttpClient +http://f.example)" => ["FooBot"];
        the_first_word_comes_before_the_full_name: "Foo web spider/4.0(+http://f.example#07)" => ["Foo", "Foo web spider"];
        browsers_have_no_candidates: "Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1; SV1; .NET CLR 1.1.4322)" => [];
        a_name_replaces_a_library: "python-requests/2.31 ExampleBot/1.0" => ["ExampleBot"];
        a_library_alone_is_a_name: "curl/8.4.0" => ["curl"];
        a_name_is_also_taken_without_a_suffix: "EvilBot:1.0" => ["EvilBot:1.0", "EvilBot"];
        a_name_is_also_taken_without_a_bracket: "[EvilBot/1" => ["[EvilBot", "EvilBot"];
        a_browser_without_its_bracket_is_no_candidate: "[Chrome/1" => ["[Chrome"];
        libraries_of_a_library_come_after_it:
            "curl/7.19.7 (x86_64-redhat-linux-gnu) libcurl/7.19.7 NSS/3.14.0.0 zlib/1.2.3 libidn/1.18 libssh2/1.4.2"
            => ["curl", "libcurl", "NSS", "zlib", "libidn", "libssh2"];
        a_number_with_a_version_is_a_name: "Mozilla/5.0 (compatible; 008/0.83; http://www.80legs.com/webcrawler.html) Gecko/2008032620" => ["008"];
        a_number_with_a_contact_is_a_name: "008 (+https://f.example)" => ["008"];
        a_number_after_compatible_is_a_name: "Mozilla/5.0 (compatible; 008 +https://f.example)" => ["008"];
        a_number_may_be_one_of_several_products: "FooBot/1.0 008/0.83" => ["FooBot", "008"];
        a_number_alone_is_a_name: "008" => ["008"];
        a_version_alone_is_no_name: "5.0" => [];
        versions_are_no_names: "Mozilla/5.0 537.36 20100101 (2008; 5.0; compatible; MSIE 6.0; 64) 1.0/2.0" => [];
        numbers_in_lists_and_dates_are_no_names: "Mozilla/4.0 (compatible; MSIE 6.0; Windows 95/98) Debian 01/02/2007" => [];
        hours_after_a_name_do_not_hide_it: "Mozilla/5.0 (compatible; FooBot; 24/7 monitoring; +http://f.example)" => ["FooBot", "24"];
        a_date_beside_a_contact_comes_after_a_name: "FooBot/1.0 (2024/05/01; a@f.example)" => ["FooBot", "2024"];
        a_date_beside_a_contact_does_not_hide_a_library: "python-requests/2.31 (2024/05/01; a@f.example)" => ["python-requests", "2024"];
        a_number_does_not_hide_a_library: "curl/8.4.0 7/1" => ["curl", "7"];
        a_number_does_not_hide_a_name_in_a_system: "Mozilla/5.0 537/36 (X11; Storebot-Google/1.0)" => ["537", "Storebot-Google"];
        a_number_of_a_system_is_no_name: "Mozilla/5.0 (compatible; MSIE 10.0; Windows NT 6.2; 1/2)" => [];
        a_version_may_follow_a_hyphen: "grub-client-1.4.3" => ["grub-client-1.4.3", "grub-client"];
        a_version_may_follow_an_underscore: "larbin_2.6.3 (larbin2.6.3@unspecified.mail)" => ["larbin_2.6.3", "larbin"];
        a_name_may_have_two_versions: "nutch-1.4/Nutch-1.4" => ["nutch-1.4", "nutch"];
        a_name_without_its_version_comes_before_other_names: "Mozilla/5.0 (compatible; Foo-2/1; BarBot/1)" => ["Foo-2", "Foo", "BarBot"];
        a_version_may_follow_several_words: "Foo web spider-v4/1" => ["Foo", "Foo web spider-v4", "Foo web spider"];
        a_library_is_also_taken_without_its_version: "libwww-perl-5.805" => ["libwww-perl-5.805", "libwww-perl"];
        a_library_with_a_hyphenated_version_is_still_a_library: "libwww-perl-5.805 (x) FooBot/1.0" => ["FooBot"];
        a_browser_without_its_version_is_no_candidate: "Mozilla-5.0" => ["Mozilla-5.0"];
        a_letter_outside_ascii_does_not_end_a_name: "jävla-fanbot/1.0" => ["jävla-fanbot"];
        a_combining_character_does_not_end_a_name: "ja\u{308}vla-fanbot/1.0" => ["ja\u{308}vla-fanbot"];
        a_letter_outside_ascii_may_begin_a_name: "öbot:1.0" => ["öbot:1.0"];
        quotes_outside_ascii_are_not_letters: "“EvilBot”/1" => ["“EvilBot”", "EvilBot"];
        a_quoted_parenthesis_does_not_end_a_comment: "A/1 (b\\) c/1; http://a.example) D/2" => ["c", "A", "D"];
    }

    // User-Agents of real crawlers, with the tokens that their operators document.
    deriving! {
        google_smartphone: "Mozilla/5.0 (Linux; Android 6.0.1; Nexus 5X Build/MMB29P) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/125.0.6422.175 Mobile Safari/537.36 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)" => ["Googlebot"];
        google_ads: "AdsBot-Google (+http://www.google.com/adsbot.html)" => ["AdsBot-Google"];
        google_media_partners: "(Various mobile device types) (compatible; Mediapartners-Google/2.1; +http://www.google.com/bot.html)" => ["Mediapartners-Google"];
        google_feeds: "FeedFetcher-Google; (+http://www.google.com/feedfetcher.html)" => ["FeedFetcher-Google"];
        google_store_is_listed_with_the_system: "Mozilla/5.0 (Linux; Android 8.0; Pixel 2 Build/OPD3.170816.012; Storebot-Google/1.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/81.0.4044.138 Mobile Safari/537.36" => ["Storebot-Google"];
        diffbot_is_listed_with_the_system: "Mozilla/5.0 (Windows; U; Windows NT 5.1; en-US; rv:1.9.1.2) Gecko/20090729 Firefox/3.5.2 (.NET CLR 3.5.30729; Diffbot/0.1)" => ["Diffbot"];
        bing_preview_is_a_product: "Mozilla/5.0 (Windows NT 6.1; WOW64) AppleWebKit/534+ (KHTML, like Gecko) BingPreview/1.0b" => ["BingPreview"];
        yandex_mirrors: "Mozilla/5.0 (compatible; YandexBot/3.0; MirrorDetector; +http://yandex.com/bots)" => ["YandexBot"];
        baidu_appends_a_plus: "Baiduspider+(+http://www.baidu.com/search/spider.htm)" => ["Baiduspider"];
        petal_has_no_spaces: "Mozilla/5.0 (compatible;PetalBot;+https://webmaster.petalsearch.com/site/petalbot)" => ["PetalBot"];
        openai_search_has_no_comment: "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36; compatible; OAI-SearchBot/1.0; +https://openai.com/searchbot" => ["OAI-SearchBot"];
        linkedin_has_a_browser_in_its_comment: "LinkedInBot/1.0 (compatible; Mozilla/5.0; Jakarta Commons-HttpClient/4.3 +http://www.linkedin.com)" => ["LinkedInBot"];
        telegram_claims_to_be_like_another: "TelegramBot (like TwitterBot)" => ["TelegramBot"];
        uptime_robot_has_a_plus_before_its_comment: "Mozilla/5.0+(compatible; UptimeRobot/2.0; http://www.uptimerobot.com/)" => ["UptimeRobot"];
        slack_has_a_space_before_its_version: "Slackbot-LinkExpanding 1.0 (+https://api.slack.com/robots)" => ["Slackbot-LinkExpanding"];
        mail_ru_has_two_slashes: "Mozilla/5.0 (compatible; Linux x86_64; Mail.RU_Bot/Img/2.0; +http://go.mail.ru/help/robots)" => ["Mail.RU_Bot"];
        archive_live: "Mozilla/5.0 (compatible; archive.org_bot; Wayback Machine Live Record; +http://archive.org/details/archive.org_bot)" => ["archive.org_bot"];
        heritrix_has_no_separator: "Mozilla/5.0 (compatible; heritrix/3.4.0-20220727 +http://archive.org)" => ["heritrix"];
        nutch_names_its_family: "NutchCVS/0.8-dev (Nutch; http://lucene.apache.org/nutch/bot.html; nutch-agent@lucene.apache.org)" => ["NutchCVS", "Nutch"];
        moz_has_a_comma: "rogerbot/1.2 (http://moz.com/help/guides/moz-procedures/what-is-rogerbot, rogerbot-crawler+shiny@moz.com)" => ["rogerbot"];
        frog_has_four_words: "Screaming Frog SEO Spider/19.2" => ["Screaming", "Screaming Frog SEO Spider"];
        validator_has_a_bare_url: "W3C_Validator/1.3 http://validator.w3.org/services" => ["W3C_Validator"];
        magpie_names_its_system: "magpie-crawler/1.1 (U; Linux amd64; en-GB; +http://www.brandwatch.net)" => ["magpie-crawler"];
        mastodon_names_its_library: "Mastodon/4.2.0 (http.rb/5.1.1; +https://m.example/)" => ["Mastodon"];
        a_library_may_come_first: "http.rb/5.1.1 (Mastodon/4.2.0; +https://m.example/)" => ["Mastodon"];
        a_name_may_begin_with_a_digit: "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/50.0.2661.102 Safari/537.36; 360Spider" => ["360Spider"];
        chrome_has_no_candidates: "Mozilla/5.0 (Windows NT 6.3; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/80.0.3987.87 Safari/537.36 Edg/80.0.361.48" => [];
        a_device_named_like_a_bot_has_no_candidates: "Mozilla/5.0 (Linux; Android 9; CUBOT_P30 Build/PPR1.180610.011) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/80.0 Mobile Safari/537.36" => [];
        konqueror_has_no_candidates: "Mozilla/5.0 (compatible; Konqueror/4.5; FreeBSD) KHTML/4.5.4 (like Gecko)" => [];
    }

    // RFC 9110, section 5.3: a field may have several lines.
    #[test]
    fn names_come_from_every_field_line() {
        let crawler = Crawler::from_user_agent([&b"A/1 (open"[..], b"", b"B\xFF/2"]);
        assert_eq!(candidates(&crawler), ["A", "Bÿ"]);
        let restored = Crawler::restore(
            crawler.candidates().to_vec(),
            Some("A/1 (open, , B\u{fffd}/2".into()),
        );
        assert_eq!(crawler, restored);
    }

    // Ours: a dropped name could be the one that robots.txt addresses.
    #[test]
    fn dropped_names_are_reported() {
        let names = |count: usize| -> String { (0..count).map(|n| format!("Bot{n}/1 ")).collect() };
        let long = |bytes: usize| format!("Foo/1 {}/1", "x".repeat(bytes));
        for (agent, cut) in [
            (names(64), false),
            (names(65), true),
            // Libraries are no candidates, but count towards the limit.
            (format!("{}Foo/1", "curl/8 ".repeat(63)), false),
            (format!("{}Foo/1", "curl/8 ".repeat(64)), true),
            (long(256), false),
            (long(257), true),
            (format!("Foo {}", "x".repeat(257)), true),
            (format!("Foo/1 (x; {})", "x".repeat(60_000)), false),
            (
                format!("Foo/1 https://a.example/{}", "x".repeat(300)),
                false,
            ),
            ("\u{80}x/1".to_owned(), true),
            (String::new(), false),
        ] {
            let crawler = Crawler::parse(&agent);
            assert_eq!(crawler.is_cut(), cut, "{agent:.40}");
        }
    }

    // Invariant 8 (ARCHITECTURE.md): a name of several words gives its first word and
    // the full name, each with and without a version.
    #[test]
    fn each_name_gives_at_most_four_candidates() {
        let names = |count: usize| -> String {
            let names = (0..count).map(|n| format!("Foo{n}-1 Bar-1/1 "));
            names.collect()
        };
        for (count, most) in [(1, 4), (64, 256), (65, 256), (1000, 256)] {
            let crawler = Crawler::parse(&names(count));
            assert_eq!(crawler.candidates().len(), most, "{count} names");
        }
    }

    // Ours.
    #[test]
    fn names_that_the_operator_does_not_list_are_kept_as_unlisted() {
        let listed = ["FooBot", "Foo"].map(|name| ProductToken::new(name).unwrap());
        let by_user_agent = Crawler::parse("foo/1 BarBot/2 curl/8");
        let crawler = Crawler::vouched_for(&listed, &by_user_agent);
        assert_eq!(candidates(&crawler), ["FooBot", "Foo"]);
        assert_eq!(crawler.unlisted(), [ProductToken::new("BarBot").unwrap()]);
        assert_eq!(crawler.user_agent(), Some("foo/1 BarBot/2 curl/8"));
        assert_eq!(crawler.naming(), Naming::Operator);
        let silent = Crawler::vouched_for(&listed, &Crawler::parse(""));
        assert_eq!(silent, Crawler::known_as(&listed, None));
    }

    // RFC 9309, section 2.2.1: `*` binds a crawler without a name.
    #[test]
    fn an_empty_or_missing_user_agent_gives_no_name() {
        for crawler in [
            Crawler::from_user_agent([]),
            Crawler::parse(" "),
            Crawler::parse(""),
        ] {
            assert_eq!((crawler.token(), crawler.user_agent()), (None, None));
        }
        assert_eq!(Crawler::parse("*").token(), None);
    }
}
