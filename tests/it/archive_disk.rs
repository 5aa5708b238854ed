//! A full disk of the archive: the proxy keeps serving, and ships the missing entries
//! once there is room. All ours; docs/archive.md.

use crate::archive_faults::{arrival, assert_archived, config, crawl, origin};
use crate::kit::archived::shipping;
use crate::kit::client::get;
use crate::kit::namespace::{Addresses, inside};
use crate::kit::paced::{metric, until_metric};
use crate::kit::postgres::Postgres;

/// Size of the archive's disk.
const DISK_BYTES: u64 = 48 << 20;

/// Requests while the disk is full, more than fit into pages that are partly used.
const REQUESTS: usize = 600;

const FAILURES: &str = "politesse_archive_errors_total";
const LAG: &str = "politesse_archive_lag_entries";

// Needs root, because PostgreSQL runs as another user on the mounted disk.
#[test]
#[ignore = "needs root; tests/full.sh runs it"]
fn a_full_archive_disk_loses_no_entry_and_stops_no_request() {
    let name = "archive_disk::a_full_archive_disk_loses_no_entry_and_stops_no_request";
    inside(name, Addresses::These(&[]), async {
        let origin = origin().await;
        let postgres = Postgres::start().await;
        let disk = postgres.move_to_disk(DISK_BYTES).await;
        let proxy = shipping(config(&origin), &postgres.url()).start().await;
        for round in 1..3 {
            crawl(proxy.address(), 100).await;
            arrival(&postgres, proxy.place()).await;
            let failures = metric(&proxy, FAILURES).await;
            disk.fill();
            crawl(proxy.address(), REQUESTS).await;
            until_metric(&proxy, FAILURES, |count| failures < count).await;
            assert_eq!(get(&proxy, "http://o.test/no").await.status(), 403);
            assert_eq!(get(&proxy, "http://o.test/open").await.status(), 200);
            until_metric(&proxy, LAG, |entries| 0.0 < entries).await;
            let line = "the disk of the archive is full";
            let log = proxy.logged_times(line, round).await;
            assert_eq!(log.matches(line).count(), round, "{log}");
            disk.make_room();
            arrival(&postgres, proxy.place()).await;
            until_metric(&proxy, LAG, |entries| entries == 0.0).await;
        }
        let line = "are shipped to the archive again";
        let log = proxy.logged_times(line, 2).await;
        assert_eq!(log.matches(line).count(), 2, "{log}");
        let place = proxy.stop().await;
        assert_archived(&postgres, &place).await;
        // The disk belongs to PostgreSQL, so stop the server before unmounting.
        drop((postgres, disk));
    });
}
