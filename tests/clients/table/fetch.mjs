// The fetch that Node, Deno and Bun have built in.
const urls = globalThis.process?.argv.slice(2) ?? Deno.args;
for (const url of urls) {
  try {
    const response = await fetch(url);
    await response.text();
    console.log(response.status, url);
  } catch (error) {
    console.log('000', url, error.cause?.message ?? error.message);
  }
}
