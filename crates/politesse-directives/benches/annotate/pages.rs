//! Pages of a given size, with heads like those of real pages.

use std::fmt::Write;

/// Returns a page: a head of about `head_bytes` bytes, and a body.
pub(crate) fn page(head_bytes: usize) -> String {
    let mut page = String::from(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>An article &amp; its title &#8211; The Example</title>\n\
         <meta name=\"description\" content=\"What an article is about, in a sentence or two that \
         nobody reads but those who search for it; not too long, not too short.\">\n\
         <meta name='robots' content='index, follow, max-image-preview:large, max-snippet:-1'>\n\
         <link rel=\"canonical\" href=\"https://www.example.com/2026/11/an-article/\">\n",
    );
    let mut turn = 0;
    while page.len() < head_bytes {
        part(&mut page, turn);
        turn += 1;
    }
    page.push_str("<meta name=\"robots\" content=\"noai, noimageai\">\n</head>\n<body>\n");
    page.push_str(&"<div class=\"content\"><p>Words of the article.</p></div>\n".repeat(100));
    page
}

/// Appends about 6 KB of elements in roughly the shares of real heads: a head of 25 KB
/// has some 70 elements.
fn part(page: &mut String, turn: usize) {
    for name in [
        "og:title",
        "og:type",
        "og:url",
        "og:image",
        "twitter:card",
        "article:section",
    ] {
        let kind = if name.starts_with("og") {
            "property"
        } else {
            "name"
        };
        let value = format!("https://www.example.com/images/{turn}/picture-of-it.jpg");
        let _ = writeln!(page, "<meta {kind}=\"{name}\" content=\"{value}\" />");
    }
    for at in 0..5 {
        let _ = writeln!(
            page,
            "<link rel='stylesheet' id='plugin-{turn}-{at}-css' \
             href='https://www.example.com/wp-content/plugins/p{at}/style.min.css?ver=6.{turn}' \
             type='text/css' media='all' />"
        );
    }
    let rule = ".block-list__item{margin:0 auto;padding:.5em 1em;color:#333}";
    let _ = writeln!(
        page,
        "<style id='inline-{turn}-css'>{}</style>",
        rule.repeat(28)
    );
    let graph =
        "{\"@type\":\"WebPage\",\"@id\":\"https://www.example.com/#page\",\"name\":\"It\"},";
    let _ = writeln!(
        page,
        "<script type=\"application/ld+json\">{{\"@graph\":[{}{{}}]}}</script>",
        graph.repeat(14)
    );
    let code = "window.dataLayer=window.dataLayer||[];if(a&&c>d){e('x');}";
    let _ = writeln!(
        page,
        "<script>{}</script>",
        code.repeat(20) + "if(a<b){document.write('<a></a>')}"
    );
    let _ = writeln!(
        page,
        "<script async src=\"https://cdn.example.com/lib-{turn}.js\"></script>"
    );
    if turn.is_multiple_of(4) {
        page.push_str("<!-- a comment of a plugin -->\n<noscript><img src='/pixel'></noscript>\n");
    }
}
