import java.net.HttpURLConnection;
import java.net.URI;

/** Asks for URLs through the proxy of the system properties and prints statuses. */
class Fetch {
    public static void main(String[] urls) throws Exception {
        for (String url : urls) {
            HttpURLConnection connection = (HttpURLConnection) URI.create(url).toURL().openConnection();
            connection.setRequestProperty("User-Agent", "JavaBot/1.0");
            System.out.println(connection.getResponseCode() + " " + url);
            connection.disconnect();
        }
    }
}
