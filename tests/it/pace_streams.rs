//! Pace over HTTP/2, where all requests share a connection.

use crate::kit::h2::H2Crawler;
use crate::kit::paced::{
    assert_apart, delaying, ms, none_in_flight, pages, queue, standard_site, verified, when,
};
use crate::kit::proxy::Proxy;

/// Returns a crawler that has fetched its first page, so that its robots.txt is cached.
async fn after_first_page(proxy: &Proxy) -> H2Crawler {
    let mut crawler = H2Crawler::inside(proxy, "o.test:443").await;
    assert_eq!(crawler.get("https://o.test/0").await.status(), 200);
    crawler
}

// Ours: requests of one crawler keep their order.
#[tokio::test]
async fn streams_are_forwarded_in_order_of_arrival() {
    let (origin, proxy) = standard_site(delaying("0.2").tls()).await;
    let mut crawler = after_first_page(&proxy).await;
    let paths: Vec<_> = (1..=10).map(|number| format!("/{number}")).collect();
    let urls = paths.iter().map(|path| format!("https://o.test{path}"));
    let streams: Vec<_> = urls.map(|url| crawler.open(&url)).collect();
    for stream in streams {
        assert_eq!(stream.await.unwrap(), 200);
    }
    assert_eq!(origin.targets()[1..], paths);
    assert_apart(&pages(&[&origin]), 11, ms(200));
    drop(crawler);
    verified(proxy, 11).await;
}

// Ours: a cancelled request leaves the queue. RFC 9113, section 8.1.
#[tokio::test]
async fn reset_streams_leave_their_places_to_the_next() {
    let (origin, proxy) = standard_site(delaying("1").tls()).await;
    let mut crawler = after_first_page(&proxy).await;
    let gone = [1, 2, 3, 4, 5].map(|number| crawler.open(&format!("https://o.test/gone/{number}")));
    queue(&proxy, 5).await;
    let last = crawler.open("https://o.test/last");
    queue(&proxy, 6).await;
    drop(gone);
    queue(&proxy, 1).await;
    assert_eq!(last.await.unwrap(), 200);
    assert_eq!(origin.targets(), ["/0", "/last"]);
    let pause = when(&origin, "/last").duration_since(when(&origin, "/0"));
    assert!((ms(1000)..ms(4500)).contains(&pause), "{pause:?}");
    none_in_flight(&proxy).await;
    drop(crawler);
    verified(proxy, 2).await;
}
