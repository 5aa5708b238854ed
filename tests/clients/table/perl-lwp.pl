use strict;
use warnings;
use LWP::UserAgent;

my $agent = LWP::UserAgent->new;
for my $url (@ARGV) {
    my $response = $agent->get($url);
    # An error of LWP's own is a 500 that no server sent.
    my $own = ($response->header('Client-Warning') // '') eq 'Internal response';
    print $own ? '000' : $response->code, " $url", $own ? ' ' . $response->message : '', "\n";
}
