// Asks for URLs through the proxy of the environment and prints status and
// annotation, or the reason of a refusal. Node, with undici's environment agent.
import { EnvHttpProxyAgent, fetch, setGlobalDispatcher } from 'undici';

setGlobalDispatcher(new EnvHttpProxyAgent());
for (const url of process.argv.slice(2)) {
  const response = await fetch(url);
  const directives = response.headers.get('robots-directives');
  const told = directives ?? (await response.json()).detail;
  console.log(`${response.status} ${told}`);
}
