import { EnvHttpProxyAgent, fetch, setGlobalDispatcher } from 'undici';

setGlobalDispatcher(new EnvHttpProxyAgent());
for (const url of process.argv.slice(2)) {
  try {
    const response = await fetch(url);
    await response.text();
    console.log(response.status, url);
  } catch (error) {
    console.log('000', url, error.cause?.message ?? error.message);
  }
}
