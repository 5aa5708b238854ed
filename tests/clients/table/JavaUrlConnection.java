import java.net.HttpURLConnection;
import java.net.URI;

class JavaUrlConnection {
    public static void main(String[] urls) {
        for (String url : urls) {
            try {
                HttpURLConnection connection = (HttpURLConnection) URI.create(url).toURL().openConnection();
                System.out.println(connection.getResponseCode() + " " + url);
            } catch (java.io.IOException error) {
                System.out.println("000 " + url + " " + error.getMessage());
            }
        }
    }
}
