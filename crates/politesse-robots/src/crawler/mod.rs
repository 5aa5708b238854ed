//! Product tokens: the names by which a robots.txt may address a crawler.
//!
//! RFC 9309, section 2.2.1, matches groups by a product token that "SHOULD be
//! a substring of the identification string that the crawler sends". A
//! proxy is not told that token, so it is derived from User-Agent (RFC 9110,
//! section 10.1.5). Does not know which groups a file has.

mod name_text;
mod token;
mod user_agent;

use std::sync::Arc;

pub use self::name_text::decode;
pub use self::token::{InvalidToken, ProductToken};

/// The crawler that asks: its candidate tokens in order, and the User-Agent that
/// they came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crawler {
    candidates: Arc<[ProductToken]>,
    /// Names in the User-Agent beside the candidates; absent if there are none.
    unlisted: Option<Arc<[ProductToken]>>,
    user_agent: Option<Arc<str>>,
    naming: Naming,
    is_cut: bool,
}

/// Source of a crawler's tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// The operator's configuration: the crawler goes by each of them.
    Operator,
    /// The User-Agent: they are candidates.
    UserAgent,
}

impl Crawler {
    /// Derives the candidates from the field values of User-Agent, in order.
    ///
    /// Names that every browser sends are never taken, names of libraries only
    /// if there is no other. A User-Agent without a usable name gives no
    /// candidates: the group of everyone binds such a crawler.
    ///
    /// In candidates a byte that is no UTF-8 counts as Windows-1252, as it does
    /// in robots.txt, so that equal bytes are equal names. `user_agent` shows it
    /// replaced.
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

    /// Takes `candidates` from the operator, in that order, whatever the
    /// User-Agent says.
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

    /// Makes the crawler of a credential: `candidates` are the names that the operator
    /// gives it, and the names in its User-Agent are added. A site knows the crawler by
    /// its User-Agent, so that the groups for these names bind it, too.
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

    /// Returns the crawler with these names beside its candidates.
    #[must_use]
    pub fn with_unlisted(self, names: Vec<ProductToken>) -> Self {
        let unlisted = (!names.is_empty()).then(|| names.into());
        Self { unlisted, ..self }
    }

    /// Reads the name that a person typed: a product token, or a whole
    /// User-Agent, of which a product token is the shortest.
    #[must_use]
    pub fn parse(agent: &str) -> Self {
        Self::from_user_agent([agent.as_bytes()])
    }

    /// Restores a crawler from a stored decision, which does not say who named
    /// it.
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

    /// Returns the candidates shared, so that a cache can keep them without a
    /// copy.
    pub(super) fn shared_candidates(&self) -> &Arc<[ProductToken]> {
        &self.candidates
    }

    /// Returns the User-Agent shared, for the same reason.
    pub(super) fn shared_user_agent(&self) -> Option<&Arc<str>> {
        self.user_agent.as_ref()
    }

    /// Returns the names in its User-Agent that the operator does not list for it,
    /// of a crawler that has proved who it is. Each that a group names binds the
    /// crawler as well as the candidates do.
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

    /// Reports whether the User-Agent has names that are no candidates: more
    /// than are looked at, or one that can be no token. Which rules bind such a
    /// crawler cannot be known.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Returns the User-Agent, invalid UTF-8 replaced; `None` if none was sent.
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

    /// One test a row: `"User-Agent" => ["candidate"];`
    macro_rules! deriving {
        ($($name:ident: $agent:literal => $expected:expr;)*) => {$(
            #[test]
            fn $name() {
                let expected: &[&str] = &$expected;
                assert_eq!(candidates(&Crawler::parse($agent)), expected);
            }
        )*};
    }

    // RFC 9110, section 10.1.5; where the name stands is habit.
    deriving! {
        bare_token_is_itself: "Example_Bot-2.x" => ["Example_Bot-2.x"];
        name_follows_compatible: "Mozilla/5.0 (compatible; ExampleBot/0.1; https://www.example.com/bot.html)" => ["ExampleBot"];
        name_may_stand_outside_its_comment: "Mozilla/5.0 (KHTML, like Gecko); compatible; FooBot/1.0; +https://f.example" => ["FooBot"];
        name_follows_a_browser: "Mozilla/5.0 (Linux; Android 6.0.1; Nexus 5X Build/MMB29P) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/1.2 Mobile Safari/537.36 (compatible; FooBot/2.1; +http://f.example)" => ["FooBot"];
        mail_address_is_no_name: "Mozilla/5.0 (Linux; Android 5.0) Mobile Safari/537.36 (compatible; Fooider; foo@f.example)" => ["Fooider"];
        name_with_contact_needs_no_compatible: "Mozilla/5.0 (Macintosh) Safari/1 (FooBot/0.1; +http://f.example)" => ["FooBot"];
        own_product_stays_behind_compatible: "FooBot/1.0 (compatible; Mozilla/5.0; Apache-HttpClient +http://f.example)" => ["FooBot"];
        first_word_then_the_whole_name: "Foo web spider/4.0(+http://f.example#07)" => ["Foo", "Foo web spider"];
        browsers_are_nobody: "Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1; SV1; .NET CLR 1.1.4322)" => [];
        library_is_the_last_choice: "python-requests/2.31 ExampleBot/1.0" => ["ExampleBot"];
        library_alone_is_a_name: "curl/8.4.0" => ["curl"];
        name_with_something_on_it: "EvilBot:1.0" => ["EvilBot:1.0", "EvilBot"];
        name_in_brackets: "[EvilBot/1" => ["[EvilBot", "EvilBot"];
        browser_in_brackets_is_no_candidate: "[Chrome/1" => ["[Chrome"];
        libraries_of_a_library_come_behind_it:
            "curl/7.19.7 (x86_64-redhat-linux-gnu) libcurl/7.19.7 NSS/3.14.0.0 zlib/1.2.3 libidn/1.18 libssh2/1.4.2"
            => ["curl", "libcurl", "NSS", "zlib", "libidn", "libssh2"];
        number_with_a_version_is_a_name: "Mozilla/5.0 (compatible; 008/0.83; http://www.80legs.com/webcrawler.html) Gecko/2008032620" => ["008"];
        number_with_a_contact_is_a_name: "008 (+https://f.example)" => ["008"];
        number_behind_compatible_is_a_name: "Mozilla/5.0 (compatible; 008 +https://f.example)" => ["008"];
        number_is_a_product_among_others: "FooBot/1.0 008/0.83" => ["FooBot", "008"];
        number_alone_is_itself: "008" => ["008"];
        version_alone_is_nobody: "5.0" => [];
        versions_are_nobody: "Mozilla/5.0 537.36 20100101 (2008; 5.0; compatible; MSIE 6.0; 64) 1.0/2.0" => [];
        number_in_a_list_or_a_date_is_nobody: "Mozilla/4.0 (compatible; MSIE 6.0; Windows 95/98) Debian 01/02/2007" => [];
        hours_behind_a_name_do_not_hide_it: "Mozilla/5.0 (compatible; FooBot; 24/7 monitoring; +http://f.example)" => ["FooBot", "24"];
        date_by_a_contact_comes_behind_a_name: "FooBot/1.0 (2024/05/01; a@f.example)" => ["FooBot", "2024"];
        date_by_a_contact_does_not_hide_a_library: "python-requests/2.31 (2024/05/01; a@f.example)" => ["python-requests", "2024"];
        number_does_not_hide_a_library: "curl/8.4.0 7/1" => ["curl", "7"];
        number_does_not_hide_a_name_in_a_system: "Mozilla/5.0 537/36 (X11; Storebot-Google/1.0)" => ["537", "Storebot-Google"];
        number_of_a_system_is_nobody: "Mozilla/5.0 (compatible; MSIE 10.0; Windows NT 6.2; 1/2)" => [];
        version_may_stand_behind_a_hyphen: "grub-client-1.4.3" => ["grub-client-1.4.3", "grub-client"];
        version_may_stand_behind_an_underscore: "larbin_2.6.3 (larbin2.6.3@unspecified.mail)" => ["larbin_2.6.3", "larbin"];
        hyphenated_version_may_have_another: "nutch-1.4/Nutch-1.4" => ["nutch-1.4", "nutch"];
        name_without_its_version_comes_before_other_names: "Mozilla/5.0 (compatible; Foo-2/1; BarBot/1)" => ["Foo-2", "Foo", "BarBot"];
        version_of_several_words: "Foo web spider-v4/1" => ["Foo", "Foo web spider-v4", "Foo web spider"];
        version_of_a_library: "libwww-perl-5.805" => ["libwww-perl-5.805", "libwww-perl"];
        library_with_a_version_is_a_library: "libwww-perl-5.805 (x) FooBot/1.0" => ["FooBot"];
        browser_with_a_version_is_no_candidate: "Mozilla-5.0" => ["Mozilla-5.0"];
        letter_outside_ascii_ends_no_name: "jävla-fanbot/1.0" => ["jävla-fanbot"];
        letter_of_two_characters_ends_no_name: "ja\u{308}vla-fanbot/1.0" => ["ja\u{308}vla-fanbot"];
        letter_outside_ascii_begins_a_name: "öbot:1.0" => ["öbot:1.0"];
        quotes_outside_ascii_are_no_letters: "“EvilBot”/1" => ["“EvilBot”", "EvilBot"];
        quoted_parenthesis_closes_nothing: "A/1 (b\\) c/1; http://a.example) D/2" => ["c", "A", "D"];
    }

    // As they are sent; what their operators document as the token.
    deriving! {
        google_smartphone: "Mozilla/5.0 (Linux; Android 6.0.1; Nexus 5X Build/MMB29P) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/125.0.6422.175 Mobile Safari/537.36 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)" => ["Googlebot"];
        google_ads: "AdsBot-Google (+http://www.google.com/adsbot.html)" => ["AdsBot-Google"];
        google_media_partners: "(Various mobile device types) (compatible; Mediapartners-Google/2.1; +http://www.google.com/bot.html)" => ["Mediapartners-Google"];
        google_feeds: "FeedFetcher-Google; (+http://www.google.com/feedfetcher.html)" => ["FeedFetcher-Google"];
        google_store_hides_in_a_system: "Mozilla/5.0 (Linux; Android 8.0; Pixel 2 Build/OPD3.170816.012; Storebot-Google/1.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/81.0.4044.138 Mobile Safari/537.36" => ["Storebot-Google"];
        diffbot_hides_in_a_system: "Mozilla/5.0 (Windows; U; Windows NT 5.1; en-US; rv:1.9.1.2) Gecko/20090729 Firefox/3.5.2 (.NET CLR 3.5.30729; Diffbot/0.1)" => ["Diffbot"];
        bing_preview_is_a_product: "Mozilla/5.0 (Windows NT 6.1; WOW64) AppleWebKit/534+ (KHTML, like Gecko) BingPreview/1.0b" => ["BingPreview"];
        yandex_mirrors: "Mozilla/5.0 (compatible; YandexBot/3.0; MirrorDetector; +http://yandex.com/bots)" => ["YandexBot"];
        baidu_glues_a_plus: "Baiduspider+(+http://www.baidu.com/search/spider.htm)" => ["Baiduspider"];
        petal_has_no_blanks: "Mozilla/5.0 (compatible;PetalBot;+https://webmaster.petalsearch.com/site/petalbot)" => ["PetalBot"];
        openai_search_stands_outside: "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36; compatible; OAI-SearchBot/1.0; +https://openai.com/searchbot" => ["OAI-SearchBot"];
        linkedin_has_a_browser_inside: "LinkedInBot/1.0 (compatible; Mozilla/5.0; Jakarta Commons-HttpClient/4.3 +http://www.linkedin.com)" => ["LinkedInBot"];
        telegram_is_like_another: "TelegramBot (like TwitterBot)" => ["TelegramBot"];
        uptime_robot_glues_its_comment: "Mozilla/5.0+(compatible; UptimeRobot/2.0; http://www.uptimerobot.com/)" => ["UptimeRobot"];
        slack_has_a_blank_for_a_slash: "Slackbot-LinkExpanding 1.0 (+https://api.slack.com/robots)" => ["Slackbot-LinkExpanding"];
        mail_ru_has_two_slashes: "Mozilla/5.0 (compatible; Linux x86_64; Mail.RU_Bot/Img/2.0; +http://go.mail.ru/help/robots)" => ["Mail.RU_Bot"];
        archive_live: "Mozilla/5.0 (compatible; archive.org_bot; Wayback Machine Live Record; +http://archive.org/details/archive.org_bot)" => ["archive.org_bot"];
        heritrix_has_no_separator: "Mozilla/5.0 (compatible; heritrix/3.4.0-20220727 +http://archive.org)" => ["heritrix"];
        nutch_says_its_family: "NutchCVS/0.8-dev (Nutch; http://lucene.apache.org/nutch/bot.html; nutch-agent@lucene.apache.org)" => ["NutchCVS", "Nutch"];
        moz_has_a_comma: "rogerbot/1.2 (http://moz.com/help/guides/moz-procedures/what-is-rogerbot, rogerbot-crawler+shiny@moz.com)" => ["rogerbot"];
        frog_has_four_words: "Screaming Frog SEO Spider/19.2" => ["Screaming", "Screaming Frog SEO Spider"];
        validator_has_a_bare_url: "W3C_Validator/1.3 http://validator.w3.org/services" => ["W3C_Validator"];
        magpie_tells_its_system: "magpie-crawler/1.1 (U; Linux amd64; en-GB; +http://www.brandwatch.net)" => ["magpie-crawler"];
        mastodon_names_its_library: "Mastodon/4.2.0 (http.rb/5.1.1; +https://m.example/)" => ["Mastodon"];
        library_is_told_first: "http.rb/5.1.1 (Mastodon/4.2.0; +https://m.example/)" => ["Mastodon"];
        digit_comes_first: "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/50.0.2661.102 Safari/537.36; 360Spider" => ["360Spider"];
        chrome_is_nobody: "Mozilla/5.0 (Windows NT 6.3; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/80.0.3987.87 Safari/537.36 Edg/80.0.361.48" => [];
        device_of_a_telling_name_is_nobody: "Mozilla/5.0 (Linux; Android 9; CUBOT_P30 Build/PPR1.180610.011) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/80.0 Mobile Safari/537.36" => [];
        konqueror_is_nobody: "Mozilla/5.0 (compatible; Konqueror/4.5; FreeBSD) KHTML/4.5.4 (like Gecko)" => [];
    }

    // RFC 9110, section 5.3: a field may have several lines.
    #[test]
    fn every_field_value_counts() {
        let crawler = Crawler::from_user_agent([&b"A/1 (open"[..], b"", b"B\xFF/2"]);
        assert_eq!(candidates(&crawler), ["A", "Bÿ"]);
        let restored = Crawler::restore(
            crawler.candidates().to_vec(),
            Some("A/1 (open, , B\u{fffd}/2".into()),
        );
        assert_eq!(crawler, restored);
    }

    // Ours: a name that is not looked at could be the one that robots.txt
    // speaks to.
    #[test]
    fn names_that_are_no_candidates_are_told() {
        let names = |count: usize| -> String { (0..count).map(|n| format!("Bot{n}/1 ")).collect() };
        let long = |bytes: usize| format!("Foo/1 {}/1", "x".repeat(bytes));
        for (agent, cut) in [
            (names(64), false),
            (names(65), true),
            // Libraries are no candidates, but hide what comes after them.
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

    // Invariant 8 (ARCHITECTURE.md): a name of several words is its first word
    // and the whole, each with and without a version.
    #[test]
    fn candidates_are_at_most_four_times_as_many_as_the_names_that_are_looked_at() {
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
    fn names_that_are_not_listed_stand_beside_those_that_are() {
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

    // RFC 9309, section 2.2.1: who has no name is bound by `*`.
    #[test]
    fn who_says_nothing_has_no_name() {
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
