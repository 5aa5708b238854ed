<?php
require '/usr/share/php/GuzzleHttp/autoload.php';

$client = new GuzzleHttp\Client(['http_errors' => false]);
foreach (array_slice($argv, 1) as $url) {
    try {
        echo $client->get($url)->getStatusCode(), " $url\n";
    } catch (GuzzleHttp\Exception\GuzzleException $error) {
        echo "000 $url ", $error->getMessage(), "\n";
    }
}
