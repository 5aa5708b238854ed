<?php
// PHP's own http:// and https:// streams know no proxy but that of a context.
foreach (array_slice($argv, 1) as $url) {
    $context = stream_context_create(['http' => ['ignore_errors' => true]]);
    $page = @file_get_contents($url, false, $context);
    $status = $page === false ? '000' : explode(' ', $http_response_header[0])[1];
    echo "$status $url\n";
}
