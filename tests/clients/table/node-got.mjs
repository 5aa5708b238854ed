import got from 'got';

for (const url of process.argv.slice(2)) {
  try {
    const response = await got(url, { throwHttpErrors: false, retry: { limit: 0 } });
    console.log(response.statusCode, url);
  } catch (error) {
    console.log('000', url, error.message);
  }
}
