import axios from 'axios';

for (const url of process.argv.slice(2)) {
  try {
    const response = await axios.get(url, { validateStatus: null });
    console.log(response.status, url);
  } catch (error) {
    console.log('000', url, error.message);
  }
}
