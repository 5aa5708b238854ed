import java.net.Authenticator;
import java.net.HttpURLConnection;
import java.net.PasswordAuthentication;
import java.net.URI;

class JavaUrlConnection {
    public static void main(String[] urls) {
        // A credential in the address of the proxy is unknown to Java.
        String user = System.getenv("PROXY_USER");
        if (user != null && !user.isEmpty()) {
            Authenticator.setDefault(new Authenticator() {
                @Override
                protected PasswordAuthentication getPasswordAuthentication() {
                    return new PasswordAuthentication(user, System.getenv("PROXY_TOKEN").toCharArray());
                }
            });
        }
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
