//! Relation of a request to the page that embeds its URL, derived from the fields that
//! browsers send: `Sec-Fetch-Dest`, `Referer` and `Accept`.
//!
//! Any client can send these fields. Does not know which pages a crawler was given;
//! `pace` does.

use http::header::{ACCEPT, REFERER};
use http::{HeaderMap, Method};

use politesse_pace::{Destination, Embedding, UrlNumber};
use politesse_robots::origin::Target;

/// Values of `Sec-Fetch-Dest` for files embedded in a page. The remaining values are
/// pages in a window or frame, and `empty`, which means a fetch by a script.
const FILES: [&str; 16] = [
    "audio",
    "audioworklet",
    "font",
    "image",
    "json",
    "manifest",
    "paintworklet",
    "script",
    "serviceworker",
    "sharedworker",
    "style",
    "text",
    "track",
    "video",
    "worker",
    "xslt",
];

/// Returns the relation of a GET for `url`; `None` for other methods, which embed
/// nothing.
pub fn of_request(method: &Method, headers: &HeaderMap, url: &Target) -> Option<Embedding> {
    let text = headers.get(REFERER).and_then(|value| value.to_str().ok());
    let referrer = text.and_then(|text| text.parse().ok());
    (*method == Method::GET).then(|| Embedding {
        url: UrlNumber::of(url),
        referrer: referrer.as_ref().map(UrlNumber::of),
        destination: destination(headers),
    })
}

fn destination(headers: &HeaderMap) -> Destination {
    let stated = headers.get("sec-fetch-dest");
    match stated.map(|value| value.to_str().unwrap_or_default()) {
        Some("empty") => Destination::Unknown,
        Some(value) if FILES.contains(&value) => Destination::File,
        Some(_) => Destination::Page,
        // Browsers do not send the field over plain HTTP, but their `Accept` lists HTML
        // when they follow a link. So does that of crawlers that follow links with a
        // `Referer`.
        None if accepts_html(headers) => Destination::Page,
        None => Destination::Unknown,
    }
}

fn accepts_html(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT).iter();
    let mut texts = values.filter_map(|value| value.to_str().ok());
    texts.any(|text| text.contains("text/html"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    fn read(method: &Method, fields: &[(&'static str, &'static str)]) -> Option<Embedding> {
        let fields = fields.iter().map(|(name, value)| {
            let name = HeaderName::from_static(name);
            (name, HeaderValue::from_static(value))
        });
        let url = "http://o.test/a".parse().unwrap();
        of_request(method, &fields.collect(), &url)
    }

    /// Generates one test per row: the destination derived from the request's fields.
    macro_rules! destinations {
        ($($name:ident: $fields:expr, $expected:ident;)*) => {$(
            #[test]
            fn $name() {
                let embedding = read(&Method::GET, &$fields).unwrap();
                assert_eq!(embedding.destination, Destination::$expected);
            }
        )*};
    }

    // Fetch Metadata Request Headers, section 2.1.
    destinations! {
        an_image_is_a_file: [("sec-fetch-dest", "image"), ("accept", "text/html")], File;
        a_document_is_a_page: [("sec-fetch-dest", "document")], Page;
        a_frame_is_a_page: [("sec-fetch-dest", "iframe")], Page;
        a_made_up_destination_is_a_page: [("sec-fetch-dest", "images")], Page;
        a_script_may_fetch_anything: [("sec-fetch-dest", "empty")], Unknown;
        accepting_html_means_following_a_link: [("accept", "text/html,*/*;q=0.8")], Page;
        accepting_anything_may_embed: [("accept", "*/*")], Unknown;
        without_fields_the_destination_is_unknown: [], Unknown;
    }

    #[test]
    fn a_referrer_is_a_url_without_its_fragment() {
        let referrer = |value| {
            let embedding = read(&Method::GET, &[("referer", value)]).unwrap();
            embedding.referrer
        };
        let url: Target = "http://o.test/p?q".parse().unwrap();
        assert_eq!(
            referrer("http://o.test:80/p?q#f"),
            Some(UrlNumber::of(&url))
        );
        assert_ne!(referrer("http://o.test/p"), Some(UrlNumber::of(&url)));
        assert_eq!(referrer("/p?q"), None);
    }

    #[test]
    fn other_methods_embed_nothing() {
        assert_eq!(read(&Method::POST, &[("sec-fetch-dest", "image")]), None);
    }
}
